// libcuda of the lab: the part of the driver API that the sample service and the vectorAdd check use. A kernel is known by its name
// in the PTX; the driver says when the GPU has got to its end, and waiting for that costs no processor.
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
  INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719, SYSTEM_NOT_READY = 802,
  SYSTEM_DRIVER_MISMATCH = 803, UNKNOWN = 999,
};
#define CONTEXT_BYTES (256 * MIB) // about what a context takes on a real GPU

struct context { const char *gpu; unsigned users; int64_t busy_until; };
struct module { char *ptx; };
struct allocation { size_t bytes; const char *gpu; _Alignas(16) char data[]; };
typedef void (*kernel)(struct context *, void **arguments, CUresult *result);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // around the connection
static int connection = -1;
static struct gpu_state gpus[MAX_GPUS];
static struct gpu_instance instances[MAX_GPUS]; // of the GPU in the same place, where it is a MIG device
static char names[MAX_GPUS][24];                // as the driver calls them: GPU or GPU/ID
static int gpu_count = -1;
static struct context contexts[MAX_GPUS];
static _Thread_local struct context *current;

// Ask the driver; `until` receives the number in its answer. A GPU that has fallen off the bus is an unknown error.
static CUresult ask(const char *verb, const char *gpu, long long amount, int64_t *until, CUresult otherwise) {
  char request[96], answer[128];
  long long number = 0;
  snprintf(request, sizeof request, "%s %s %lld", verb, gpu, amount);
  pthread_mutex_lock(&lock);
  int length = driver_request(connection, request, answer, sizeof answer);
  pthread_mutex_unlock(&lock);
  if (length < 0) return otherwise;
  if (!strncmp(answer, "error", 5)) return strstr(answer, "is lost") ? UNKNOWN : otherwise;
  if (until && sscanf(answer, "until %lld", &number) == 1) *until = number;
  return SUCCESS;
}

// ---- kernels

static CUresult occupy(struct context *context, uint64_t nanoseconds) {
  return ask("launch", context->gpu, nanoseconds, &context->busy_until, LAUNCH_FAILED);
}

static void spin(struct context *context, void **arguments, CUresult *result) { *result = occupy(context, *(uint64_t *)arguments[0]); }

static void vector_add(struct context *context, void **arguments, CUresult *result) {
  const float *a = *(float **)arguments[0], *b = *(float **)arguments[1];
  float *sum = *(float **)arguments[2];
  uint32_t count = *(uint32_t *)arguments[3];
  *result = occupy(context, count); // a nanosecond an element
  for (uint32_t i = 0; *result == SUCCESS && i < count; i++) sum[i] = a[i] + b[i];
}

static const struct { const char *name; kernel run; } KERNELS[] = {{"spin", spin}, {"vector_add", vector_add}};

// ---- driver and devices

// All GPUs that are not split. Where there are none: the first MIG device, since CUDA takes one and no more.
static int find_devices(void) {
  struct gpu_state all[MAX_GPUS];
  struct gpu_instance parts[MAX_INSTANCES];
  int count = driver_gpus(all), found = 0;
  for (int i = 0; i < count; i++)
    if (!all[i].mig) {
      snprintf(names[found], sizeof names[found], "%u", all[i].index);
      gpus[found++] = all[i];
    }
  for (int i = 0; !found && i < count; i++) {
    int there = driver_instances(all[i].index, parts);
    for (int j = 0; !found && j < there; j++)
      if (parts[j].compute) {
        snprintf(names[found], sizeof names[found], "%u/%u", all[i].index, parts[j].id);
        instances[found] = parts[j];
        gpus[found++] = all[i];
      }
  }
  return count < 0 ? -1 : found;
}

static bool is_of_the_driver(void) {
  Dl_info own;
  char said[128], release[64];
  const char *mine = dladdr((void *)is_of_the_driver, &own) ? library_release(own.dli_fname) : DRIVER_VERSION;
  int length = driver_request(connection, "driver", said, sizeof said);
  return length >= 0 && sscanf(said, "driver %63s", release) == 1 && !strcmp(release, mine);
}

// What stops CUDA although NVML works, by the codes of real drivers.
static CUresult obstacle(void) {
  char fabric[32], path[128];
  struct stat node;
  if (!is_of_the_driver()) return SYSTEM_DRIVER_MISMATCH;
  if (!driver_fabric(fabric, sizeof fabric) && strcmp(fabric, "N/A") && strcmp(fabric, "Completed")) return SYSTEM_NOT_READY;
  return stat(machine_path(path, sizeof path, "/dev/nvidia-uvm"), &node) ? UNKNOWN : SUCCESS;
}

CUresult cuInit(unsigned flags) {
  if (flags) return INVALID_VALUE;
  if (gpu_count < 0) {
    connection = driver_connect();
    CUresult stopped = connection < 0 ? NO_DEVICE : obstacle();
    if (stopped) {
      if (connection >= 0) close(connection);
      return stopped;
    }
    gpu_count = find_devices();
  }
  return gpu_count > 0 ? SUCCESS : NO_DEVICE;
}
CUresult cuDriverGetVersion(int *out) { *out = 13000; return SUCCESS; }
CUresult cuDeviceGetCount(int *out) {
  if (gpu_count < 0) return NOT_INITIALIZED;
  *out = gpu_count;
  return SUCCESS;
}
CUresult cuDeviceGet(int *out, int ordinal) {
  if (gpu_count < 0) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal >= gpu_count) return INVALID_DEVICE;
  *out = ordinal;
  return SUCCESS;
}
CUresult cuDeviceGetName(char *out, int size, int device) {
  if (device < 0 || device >= gpu_count) return INVALID_DEVICE;
  const struct gpu_instance *part = &instances[device];
  snprintf(out, size, "%s%s%s", MODELS[gpus[device].model].name, part->compute ? " MIG " : "", part->compute ? PROFILES[part->profile].name : "");
  return SUCCESS;
}
static CUresult bytes_of(const char *uuid, unsigned char out[16]) {
  const char *digit = uuid + strlen("GPU-");
  for (int i = 0; i < 16; i++, digit += 2) {
    digit += *digit == '-';
    sscanf(digit, "%2hhx", &out[i]);
  }
  return SUCCESS;
}
CUresult cuDeviceGetUuid(unsigned char out[16], int device) {
  return device < 0 || device >= gpu_count ? INVALID_DEVICE : bytes_of(gpus[device].uuid, out);
}
CUresult cuDeviceGetUuid_v2(unsigned char out[16], int device) { // of the MIG device, where it is one
  return device < 0 || device >= gpu_count ? INVALID_DEVICE : bytes_of(instances[device].compute ? instances[device].uuid : gpus[device].uuid, out);
}
CUresult cuDeviceTotalMem_v2(size_t *out, int device) {
  if (device < 0 || device >= gpu_count) return INVALID_DEVICE;
  *out = (instances[device].compute ? PROFILES[instances[device].profile].memory_mib : MODELS[gpus[device].model].memory_mib) * MIB;
  return SUCCESS;
}

// ---- contexts

CUresult cuDevicePrimaryCtxRetain(struct context **out, int device) {
  if (device < 0 || device >= gpu_count) return INVALID_DEVICE;
  struct context *context = &contexts[device];
  context->gpu = names[device];
  CUresult refused = context->users ? SUCCESS : ask("alloc", context->gpu, CONTEXT_BYTES, NULL, OUT_OF_MEMORY);
  if (refused) return refused;
  context->users++;
  *out = context;
  return SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(int device) {
  if (device < 0 || device >= gpu_count || !contexts[device].users) return INVALID_DEVICE;
  if (--contexts[device].users == 0) ask("alloc", contexts[device].gpu, -(long long)CONTEXT_BYTES, NULL, UNKNOWN);
  return SUCCESS;
}
CUresult cuCtxSetCurrent(struct context *context) {
  current = context;
  return SUCCESS;
}
CUresult cuCtxSynchronize(void) {
  if (!current) return INVALID_CONTEXT;
  struct timespec end = {.tv_sec = current->busy_until / 1000000000, .tv_nsec = current->busy_until % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL)) continue; // interrupted by a signal
  return SUCCESS;
}

// ---- modules and launch

CUresult cuModuleLoadData(struct module **out, const void *image) {
  if (!current) return INVALID_CONTEXT;
  if (!strstr(image, ".version")) return INVALID_IMAGE;
  *out = malloc(sizeof **out);
  **out = (struct module){strdup(image)};
  return SUCCESS;
}
CUresult cuModuleUnload(struct module *module) {
  free(module->ptx);
  free(module);
  return SUCCESS;
}
CUresult cuModuleGetFunction(kernel *out, const struct module *module, const char *name) {
  char entry[64];
  snprintf(entry, sizeof entry, ".entry %s(", name);
  for (size_t i = 0; strstr(module->ptx, entry) && i < sizeof KERNELS / sizeof *KERNELS; i++)
    if (!strcmp(KERNELS[i].name, name)) {
      *out = KERNELS[i].run;
      return SUCCESS;
    }
  return NOT_FOUND;
}
CUresult cuLaunchKernel(kernel run, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned shared_bytes, void *stream, void **arguments, void **extra) {
  (void)shared_bytes, (void)stream, (void)extra;
  if (!current) return INVALID_CONTEXT;
  if (!(grid_x && grid_y && grid_z && block_x && block_y && block_z)) return INVALID_VALUE;
  CUresult result;
  run(current, arguments, &result);
  return result;
}

// ---- memory: the host's, accounted to the GPU

CUresult cuMemAlloc_v2(void **out, size_t bytes) {
  if (!current) return INVALID_CONTEXT;
  if (!bytes) return INVALID_VALUE;
  struct allocation *block = malloc(sizeof *block + bytes);
  CUresult refused = block ? ask("alloc", current->gpu, bytes, NULL, OUT_OF_MEMORY) : OUT_OF_MEMORY;
  if (refused) {
    free(block);
    return refused;
  }
  *block = (struct allocation){.bytes = bytes, .gpu = current->gpu};
  *out = block->data;
  return SUCCESS;
}
CUresult cuMemFree_v2(char *data) {
  struct allocation *block = (struct allocation *)(data - offsetof(struct allocation, data));
  ask("alloc", block->gpu, -(long long)block->bytes, NULL, UNKNOWN);
  free(block);
  return SUCCESS;
}
CUresult cuMemcpyHtoD_v2(void *device, const void *host, size_t bytes) {
  CUresult done = cuCtxSynchronize();
  memcpy(device, host, bytes);
  return done;
}
CUresult cuMemcpyDtoH_v2(void *host, const void *device, size_t bytes) { return cuMemcpyHtoD_v2(host, device, bytes); }

// ---- errors

CUresult cuGetErrorName(CUresult error, const char **out) {
  switch (error) {
    case SUCCESS: *out = "CUDA_SUCCESS"; break;
    case INVALID_VALUE: *out = "CUDA_ERROR_INVALID_VALUE"; break;
    case OUT_OF_MEMORY: *out = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case NOT_INITIALIZED: *out = "CUDA_ERROR_NOT_INITIALIZED"; break;
    case NO_DEVICE: *out = "CUDA_ERROR_NO_DEVICE"; break;
    case INVALID_DEVICE: *out = "CUDA_ERROR_INVALID_DEVICE"; break;
    case INVALID_IMAGE: *out = "CUDA_ERROR_INVALID_IMAGE"; break;
    case INVALID_CONTEXT: *out = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case NOT_FOUND: *out = "CUDA_ERROR_NOT_FOUND"; break;
    case SYSTEM_NOT_READY: *out = "CUDA_ERROR_SYSTEM_NOT_READY"; break;
    case SYSTEM_DRIVER_MISMATCH: *out = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; break;
    case LAUNCH_FAILED: *out = "CUDA_ERROR_LAUNCH_FAILED"; break;
    default: *out = "CUDA_ERROR_UNKNOWN";
  }
  return SUCCESS;
}
