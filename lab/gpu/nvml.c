// libnvidia-ml of the lab: what device plugin, GPU feature discovery, container toolkit, exporter and nvidia-smi ask for.
// Each call reads the driver's state anew; what is not here is a weak stub (stubs.py) that is not supported, as on many a real GPU.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "driver.h"
#include "nvml.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CUDA_VERSION 13000 // of driver 580

struct nvmlDevice_st { char place; }; // its own in the list below is all that a handle says
static struct nvmlDevice_st devices[MAX_GPUS];

struct events { // an event set: which GPUs are watched, and the error each showed last
  unsigned long long mask[MAX_GPUS];
  unsigned seen[MAX_GPUS];
};

static nvmlReturn_t copy(char *out, unsigned size, const char *text) {
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(text) >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(out, text);
  return NVML_SUCCESS;
}

static nvmlReturn_t look_up(nvmlDevice_t device, struct gpu_state *out) {
  struct gpu_state all[MAX_GPUS];
  int count = driver_gpus(all);
  if (count < 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  for (int i = 0; device.handle && i < count; i++)
    if (all[i].index == device.handle - devices) {
      *out = all[i];
      return out->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    }
  return NVML_ERROR_INVALID_ARGUMENT;
}

// The head of a getter: `gpu` and `model` of the device, or return. `out` is what the caller wants filled.
#define LOOK_UP(device, out)                                   \
  struct gpu_state gpu;                                        \
  if (!(out)) return NVML_ERROR_INVALID_ARGUMENT;              \
  nvmlReturn_t found = look_up(device, &gpu);                  \
  if (found != NVML_SUCCESS) return found;                     \
  const struct model *model = &MODELS[gpu.model];              \
  (void)model

#define GETTER(function, type, value)                          \
  nvmlReturn_t function(nvmlDevice_t device, type *out) {      \
    LOOK_UP(device, out);                                      \
    *out = value;                                              \
    return NVML_SUCCESS;                                       \
  }

// ---- library and system

static const char *own_release(void) {
  Dl_info own;
  return dladdr((void *)own_release, &own) ? library_release(own.dli_fname) : DRIVER_VERSION;
}

// What the driver says of itself: its release, and whether it stays loaded.
static nvmlReturn_t ask_driver(char release[64], unsigned *persistence) {
  char said[128];
  int connection = driver_connect();
  if (connection < 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  int length = driver_request(connection, "driver", said, sizeof said);
  close(connection);
  return length >= 0 && sscanf(said, "driver %63s %u", release, persistence) == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlInit_v2(void) {
  char release[64];
  unsigned persistence;
  nvmlReturn_t asked = ask_driver(release, &persistence);
  if (asked != NVML_SUCCESS) return asked;
  return strcmp(release, own_release()) ? NVML_ERROR_LIB_RM_VERSION_MISMATCH : NVML_SUCCESS;
}
nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }
nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }

const char *nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size) { return copy(out, size, own_release()); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned size) {
  char version[80];
  snprintf(version, sizeof version, "13.%s", own_release());
  return copy(out, size, version);
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out) {
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  *out = CUDA_VERSION;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }

// ---- finding a device

// The first visible GPU for which `matches` holds.
#define FIND(device, matches)                                  \
  struct gpu_state all[MAX_GPUS];                              \
  if (!(device)) return NVML_ERROR_INVALID_ARGUMENT;           \
  int count = driver_gpus(all);                                \
  if (count < 0) return NVML_ERROR_DRIVER_NOT_LOADED;          \
  for (int i = 0; i < count; i++)                              \
    if (matches) {                                             \
      device->handle = &devices[all[i].index];                    \
      return NVML_SUCCESS;                                     \
    }                                                          \
  return NVML_ERROR_NOT_FOUND

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out) {
  struct gpu_state all[MAX_GPUS];
  int count = driver_gpus(all);
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  if (count < 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  *out = count;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount(unsigned *out) { return nvmlDeviceGetCount_v2(out); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  unsigned visible;
  nvmlReturn_t counted = nvmlDeviceGetCount_v2(&visible);
  if (counted != NVML_SUCCESS) return counted;
  if (index >= visible) return NVML_ERROR_INVALID_ARGUMENT;
  FIND(device, i == (int)index);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) { FIND(device, uuid && !strcmp(all[i].uuid, uuid)); }

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device) {
  unsigned domain, bus;
  if (!address || sscanf(address, "%x:%x:", &domain, &bus) != 2) return NVML_ERROR_INVALID_ARGUMENT;
  FIND(device, all[i].domain == domain && all[i].bus == bus);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *address, nvmlDevice_t *device) { return nvmlDeviceGetHandleByPciBusId_v2(address, device); }

// ---- what a device is

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned size) {
  LOOK_UP(device, out);
  return copy(out, size, model->name);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned size) {
  LOOK_UP(device, out);
  return copy(out, size, gpu.uuid);
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
  LOOK_UP(device, major && minor ? major : NULL);
  *major = model->cc_major;
  *minor = model->cc_minor;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out) {
  LOOK_UP(device, out);
  *out = (nvmlPciInfo_t){.domain = gpu.domain, .bus = gpu.bus, .pciDeviceId = model->pci_device << 16 | 0x10de};
  snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:00.0", gpu.domain & 0xffff, gpu.bus & 0xff);
  snprintf(out->busId, sizeof out->busId, "%08X:%02X:00.0", gpu.domain, gpu.bus & 0xff);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *out) { return nvmlDeviceGetPciInfo_v3(device, out); }
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *out) { return nvmlDeviceGetPciInfo_v3(device, out); }

GETTER(nvmlDeviceGetIndex, unsigned, gpu.index)
GETTER(nvmlDeviceGetMinorNumber, unsigned, gpu.index)
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *out) {
  char release[64];
  unsigned persistence;
  LOOK_UP(device, out);
  nvmlReturn_t asked = ask_driver(release, &persistence);
  if (asked == NVML_SUCCESS) *out = persistence ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return asked;
}
GETTER(nvmlDeviceGetBrand, nvmlBrandType_t, model->brand)
GETTER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, model->architecture)
GETTER(nvmlDeviceGetNumGpuCores, unsigned, model->cores)
GETTER(nvmlDeviceGetMemoryBusWidth, unsigned, model->bus_bits)
GETTER(nvmlDeviceIsMigDeviceHandle, unsigned, 0)
GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned, 0)
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuTopologyLevel_t *out) {
  LOOK_UP(device, other.handle ? out : NULL);
  *out = NVML_TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

// ---- what a device does: all that is not utilisation or memory is made from these two

GETTER(nvmlDeviceGetUtilizationRates, nvmlUtilization_t, ((nvmlUtilization_t){.gpu = gpu.util, .memory = gpu.mem}))
GETTER(nvmlDeviceGetPowerUsage, unsigned, model->power_mw / 5 + model->power_mw / 125 * gpu.util)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, model->power_mw)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, model->power_mw)
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned *out) {
  LOOK_UP(device, sensor == NVML_TEMPERATURE_GPU ? out : NULL);
  *out = 35 + gpu.util * 2 / 5;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t clock, unsigned *out) {
  LOOK_UP(device, out);
  *out = clock == NVML_CLOCK_MEM ? model->memory_mhz : model->sm_mhz;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t clock, unsigned *out) {
  LOOK_UP(device, out);
  *out = clock == NVML_CLOCK_MEM ? model->memory_mhz : gpu.util ? model->sm_mhz : 210;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
  LOOK_UP(device, out);
  unsigned long long total = model->memory_mib * MIB, used = model->reserved_mib * MIB + gpu.used_bytes; // version 1 knows no reserved memory
  *out = (nvmlMemory_t){.total = total, .used = used, .free = total - used};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
  LOOK_UP(device, out);
  out->total = model->memory_mib * MIB;
  out->reserved = model->reserved_mib * MIB;
  out->used = gpu.used_bytes;
  out->free = out->total - out->reserved - out->used;
  return NVML_SUCCESS;
}

// ---- the processes on a device

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *out) {
  LOOK_UP(device, count);
  struct gpu_process running[MAX_PROCESSES];
  int all = driver_processes(gpu.index, running);
  if (all < 0) return NVML_ERROR_UNKNOWN;
  unsigned room = *count;
  *count = all;
  if (room < (unsigned)all) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (int i = 0; out && i < all; i++)
    out[i] = (nvmlProcessInfo_t){.pid = running[i].pid, .usedGpuMemory = running[i].used_bytes, .gpuInstanceId = 0xffffffff, .computeInstanceId = 0xffffffff};
  return NVML_SUCCESS;
}

// One sample a process that ran a kernel, of the last second.
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned *count, unsigned long long since) {
  LOOK_UP(device, count);
  struct gpu_process running[MAX_PROCESSES];
  struct timespec now;
  int all = driver_processes(gpu.index, running);
  unsigned room = out ? *count : 0;
  (void)since;
  if (all < 0) return NVML_ERROR_UNKNOWN;
  clock_gettime(CLOCK_REALTIME, &now);
  *count = 0;
  for (int i = 0; i < all; i++) {
    if (!running[i].util) continue;
    if (*count < room)
      out[*count] = (nvmlProcessUtilizationSample_t){.pid = running[i].pid, .timeStamp = now.tv_sec * 1000000ull + now.tv_nsec / 1000, .smUtil = running[i].util};
    ++*count;
  }
  return !*count ? NVML_ERROR_NOT_FOUND : *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

// ---- profiling, by GPM: an L4 has it from DCGM alone, which is not to be had, so its numbers come this way

struct nvmlGpmSample_st { unsigned prof, mem; };

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
  LOOK_UP(device, out);
  if (out->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  out->isSupportedDevice = 1;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  out->handle = calloc(1, sizeof *out->handle);
  return out->handle ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}
nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
  free(sample.handle);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
  LOOK_UP(device, sample.handle);
  *sample.handle = (struct nvmlGpmSample_st){.prof = gpu.prof, .mem = gpu.mem};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *out) {
  if (!out || !out->sample1.handle || !out->sample2.handle) return NVML_ERROR_INVALID_ARGUMENT;
  if (out->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  for (unsigned i = 0; i < out->numMetrics; i++) {
    nvmlGpmMetric_t *metric = &out->metrics[i];
    metric->nvmlReturn = NVML_SUCCESS;
    switch (metric->metricId) {
      case NVML_GPM_METRIC_GRAPHICS_UTIL:
      case NVML_GPM_METRIC_SM_UTIL: metric->value = out->sample2.handle->prof; break;
      case NVML_GPM_METRIC_DRAM_BW_UTIL: metric->value = out->sample2.handle->mem; break;
      default: metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
  }
  return NVML_SUCCESS;
}

// ---- error events

GETTER(nvmlDeviceGetSupportedEventTypes, unsigned long long, nvmlEventTypeXidCriticalError)

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out) {
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  struct events *set = calloc(1, sizeof *set);
  if (!set) return NVML_ERROR_MEMORY;
  out->handle = (void *)set;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t handle) {
  free(handle.handle);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t handle) {
  LOOK_UP(device, handle.handle);
  struct events *set = (struct events *)handle.handle;
  set->mask[gpu.index] |= types;
  set->seen[gpu.index] = gpu.xid; // what was wrong before is no event
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t handle, nvmlEventData_t *out, unsigned timeout_ms) {
  const struct timespec step = {.tv_nsec = 200000000};
  struct events *set = (struct events *)handle.handle;
  struct gpu_state all[MAX_GPUS];
  if (!set || !out) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned waited = 0;; waited += 200) {
    int count = driver_gpus(all);
    for (int i = 0; i < count; i++) {
      unsigned index = all[i].index, seen = set->seen[index];
      set->seen[index] = all[i].xid;
      if (!all[i].xid || all[i].xid == seen || !(set->mask[index] & nvmlEventTypeXidCriticalError)) continue;
      *out = (nvmlEventData_t){.device = {&devices[index]}, .eventType = nvmlEventTypeXidCriticalError, .eventData = all[i].xid,
                               .gpuInstanceId = 0xffffffff, .computeInstanceId = 0xffffffff};
      return NVML_SUCCESS;
    }
    if (waited >= timeout_ms) return NVML_ERROR_TIMEOUT;
    nanosleep(&step, NULL);
  }
}
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t handle, nvmlEventData_t *out, unsigned timeout_ms) { return nvmlEventSetWait_v2(handle, out, timeout_ms); }
