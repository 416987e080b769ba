// What the stand-in driver (persistenced.c) and its clients (nvml.c, cuda.c) have in common.
//
// They talk over a stream socket, one line a request, one answer a request:
//   driver                   -> `driver RELEASE PERSISTENCE`: what is loaded, and whether it stays loaded, 1 or 0
//   state                    -> `gpus COUNT`, then a line a GPU: struct gpu_state in this order
//   fabric                   -> `fabric STATE`: N/A without NVSwitches, else what /run/nvidia-fabricmanager/state has, as nvidia-smi words it
//   launch GPU NANOSECONDS   -> `until T`: the kernel's end on CLOCK_MONOTONIC, after all that was launched before it
//   alloc GPU BYTES          -> `ok`; BYTES < 0 frees; what a client holds goes with its connection
//   processes GPU            -> `processes COUNT`, then a line a process that has memory there or ran a kernel: struct gpu_process
//   mig GPU 1                -> `ok`; MIG mode, which the next load of the driver has forgotten, as from Hopper on; 0 ends it
//   instances GPU            -> `instances COUNT`, then a line a GPU instance: struct gpu_instance in this order
//   partition GPU PROFILE    -> `instance ID`: a new GPU instance of the profile of this id, where there is room
//   compute GPU/ID 1         -> `ok`; the compute instance that is all of a GPU instance: a MIG device; 0 ends it
//   merge GPU/ID             -> `ok`; the GPU instance is gone
//   set GPU util PERCENT     -> `ok`; the reading is this, whatever the load and however absurd; `set GPU util auto` ends it
//   set GPU prof PERCENT     -> `ok`; the same for what profiling reads, which is another counter of the hardware
//   set GPU mem PERCENT      -> `ok`; the same for the utilisation of memory, by default half of that of the GPU
//   set GPU xid NUMBER       -> `ok`; an error event of this number; 0 clears it
//   set GPU lost 1           -> `ok`; the GPU fell off the bus; 0 brings it back
//   noise POINTS SEED        -> `ok`; readings of a GPU that works vary by so many percentage points, sampled six times a second; 0 ends it
// launch, alloc, processes and set take GPU/ID for a GPU instance as well. Anything else is answered `error REASON`.
//
// The lines of the control file, LAB_GPU_CONTROL or /run/nvidia-persistenced/control, are requests too: the driver takes all of them when it
// starts and whenever the file is written, and writes their answers to the file of the same name with `.answers` behind it.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GPUS 128
#define LONGEST_ANSWER (MAX_GPUS * 128)
#define MIB (1024ull * 1024ull)

// How a GPU can be split: NVML's number of the profile and its id, its name, slices of the SMs, what it takes of the eight slices of memory
// and where it may begin, how many there may be, and what is in one.
struct profile {
  unsigned number, id;
  const char *name;
  unsigned slices, size, starts, most, sms, copy, decoders, jpeg, ofa, memory_mib;
};
#define MAX_INSTANCES 7
#define MEMORY_SLICES 8

// Of a GH100 chip, as an H200 gave them with driver 580.159.04 (docs/tested.md); memory is what `nvidia-smi mig -lgip` lists for 80 GB.
static const struct profile PROFILES[] = {
    {0, 19, "1g.10gb", 1, 1, 0x7f, 7, 16, 1, 1, 1, 0, 9984},
    {7, 20, "1g.10gb+me", 1, 1, 0x7f, 1, 16, 1, 1, 1, 1, 9984},
    {9, 15, "1g.20gb", 1, 2, 0x55, 4, 26, 1, 1, 1, 0, 20096},
    {1, 14, "2g.20gb", 2, 2, 0x15, 3, 32, 2, 2, 2, 0, 20096},
    {2, 9, "3g.40gb", 3, 4, 0x11, 2, 60, 3, 3, 3, 0, 40448},
    {3, 5, "4g.40gb", 4, 4, 0x01, 1, 64, 4, 4, 4, 0, 40448},
    {4, 0, "7g.80gb", 7, 8, 0x01, 1, 132, 8, 7, 7, 1, 81152},
};
#define PROFILE_COUNT (sizeof PROFILES / sizeof *PROFILES)

// GPU instances are numbered as a heap: 0 is all of the memory, 1 and 2 its halves, 7 to 14 its eighths, the second half first. So did a
// driver number those of an A100 (`nvidia-smi mig -lgi`: 7 at 4:1, 11 at 0:1).
#define INSTANCE_IDS 15
static inline unsigned instance_id(unsigned start, unsigned size) { return MEMORY_SLICES / size - 1 + (start ^ (size < MEMORY_SLICES ? MEMORY_SLICES / 2 : 0)) / size; }
// Minor numbers of the device nodes that give access, as /proc/driver/nvidia-caps/mig-minors has them.
#define CAP_GPUS 32
#define CAP_COMPUTE_IDS 8
static inline unsigned instance_cap(unsigned gpu, unsigned id) { return 3 + (gpu * INSTANCE_IDS + id) * (1 + CAP_COMPUTE_IDS); }
static inline unsigned compute_cap(unsigned gpu, unsigned id, unsigned compute) { return instance_cap(gpu, id) + 1 + compute; }

struct model {
  unsigned pci_device; // as in sysfs `device`
  const char *name;
  int cc_major, cc_minor, architecture, brand;
  unsigned memory_mib, reserved_mib, cores, bus_bits, power_mw, sm_mhz, memory_mhz;
  unsigned mig; // whether it can be split into PROFILES
};

// Columns as above; architecture and brand are NVML's numbers. What the driver reserves is about half a GiB.
static const struct model MODELS[] = {
    {0x27b8, "NVIDIA L4", 8, 9, 8, 14, 23034, 512, 7424, 192, 72000, 2040, 6251, 0},
    {0x2330, "NVIDIA H100 80GB HBM3", 9, 0, 9, 14, 81559, 512, 16896, 5120, 700000, 1980, 2619, 1},
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
  unsigned mig;          // whether MIG mode is on
};
// For printf and scanf alike.
#define GPU_STATE_FORMAT "%u %u %x %x %47s %u %u %u %llu %u %u %u"
#define GPU_STATE_FIELDS 12

struct gpu_instance {
  unsigned id, profile, start; // `profile` is the row in PROFILES, `start` the first slice of memory
  unsigned compute;            // whether there is a compute instance, of id 0: only then it is a MIG device
  char uuid[48];               // of the MIG device
  unsigned prof, mem;          // as of a GPU
  unsigned long long used_bytes;
};
#define GPU_INSTANCE_FORMAT "%u %u %u %u %47s %u %u %llu"
#define GPU_INSTANCE_FIELDS 8

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
int driver_fabric(char *state, size_t size);                                                 // 0, or -1
int driver_request(int connection, const char *request, char *answer, size_t size);          // length of the answer, or -1
int driver_gpus(struct gpu_state out[MAX_GPUS]);                                             // GPUs with a device node here, or -1
int driver_instances(unsigned gpu, struct gpu_instance out[MAX_INSTANCES]);                  // MIG devices with device nodes here, or -1
int driver_processes(const char *gpu, struct gpu_process out[MAX_PROCESSES]);                // how many use it, or -1
int driver_order(char *answer, size_t size, const char *format, ...);                        // 0, or -1 with the reason in `answer`
