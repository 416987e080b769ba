// What the stand-in driver (persistenced.c) and its clients (nvml.c, cuda.c) have in common.
//
// They talk over a stream socket, one line a request, one answer a request:
//   driver                   -> `driver RELEASE PERSISTENCE`: what is loaded, and whether it stays loaded, 1 or 0
//   state                    -> `gpus COUNT`, then a line a GPU: struct gpu_state in this order
//   launch GPU NANOSECONDS   -> `until T`: the kernel's end on CLOCK_MONOTONIC, after all that was launched before it
//   alloc GPU BYTES          -> `ok`; BYTES < 0 frees; what a client holds goes with its connection
//   processes GPU            -> `processes COUNT`, then a line a process that has memory there or ran a kernel: struct gpu_process
//   set GPU util PERCENT     -> `ok`; the reading is this, whatever the load and however absurd; `set GPU util auto` ends it
//   set GPU prof PERCENT     -> `ok`; the same for what profiling reads, which is another counter of the hardware
//   set GPU mem PERCENT      -> `ok`; the same for the utilisation of memory, by default half of that of the GPU
//   set GPU xid NUMBER       -> `ok`; an error event of this number; 0 clears it
//   set GPU lost 1           -> `ok`; the GPU fell off the bus; 0 brings it back
// Anything else is answered `error REASON`.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GPUS 128
#define LONGEST_ANSWER (MAX_GPUS * 128)
#define MIB (1024ull * 1024ull)

struct model {
  unsigned pci_device; // as in sysfs `device`
  const char *name;
  int cc_major, cc_minor, architecture, brand;
  unsigned memory_mib, reserved_mib, cores, bus_bits, power_mw, sm_mhz, memory_mhz;
};

// Columns as above; architecture and brand are NVML's numbers. What the driver reserves is about half a GiB.
static const struct model MODELS[] = {
    {0x27b8, "NVIDIA L4", 8, 9, 8, 14, 23034, 512, 7424, 192, 72000, 2040, 6251},
};
#define MODEL_COUNT (sizeof MODELS / sizeof *MODELS)

struct gpu_state {
  unsigned index, model; // `index` is N of /dev/nvidiaN, `model` the row in MODELS
  unsigned domain, bus;  // PCI address domain:bus:00.0
  char uuid[48];
  unsigned util;         // percent of the last second in which a kernel ran
  unsigned prof, mem;    // what profiling says of that second, and the part of it in which memory was used
  unsigned long long used_bytes;
  unsigned xid, lost;
};
// For printf and scanf alike.
#define GPU_STATE_FORMAT "%u %u %x %x %47s %u %u %u %llu %u %u"

struct gpu_process {
  unsigned pid, util;    // as the driver sees it; percent of the last second in which a kernel of it ran
  unsigned long long used_bytes;
};
#define GPU_PROCESS_FORMAT "%u %u %llu"
#define MAX_PROCESSES 64

// A path of the machine; below LAB_GPU_ROOT where that is set, as in tests.
static inline const char *machine_path(char *out, size_t size, const char *path) {
  const char *root = getenv("LAB_GPU_ROOT");
  snprintf(out, size, "%s%s", root ? root : "", path);
  return out;
}

// The release that a library is of, by the name of its file: what follows `.so.`; DRIVER_VERSION where that says none, as in tests.
static inline const char *library_release(const char *library) {
  static char path[4096];
  const char *release = realpath(library, path) ? strstr(path, ".so.") : NULL;
  return release && strchr(release + 4, '.') ? release + 4 : DRIVER_VERSION;
}

// client.c
int driver_connect(void);                                                                    // a connection, or -1
int driver_request(int connection, const char *request, char *answer, size_t size);          // length of the answer, or -1
int driver_gpus(struct gpu_state out[MAX_GPUS]);                                             // GPUs with a device node here, or -1
int driver_processes(unsigned gpu, struct gpu_process out[MAX_PROCESSES]);                   // how many use it, or -1
