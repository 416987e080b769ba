// libnvidia-ml of the lab: what device plugin, GPU feature discovery, container toolkit, exporter and nvidia-smi ask for.
// Each call reads the driver's state anew; what is not here is a weak stub (stubs.py) that is not supported, as on many a real GPU.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "driver.h"
#include "nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CUDA_VERSION 13000 // of driver 580

// A handle says what it is of by its place in these: a GPU, then its GPU instances by their ids, which are MIG devices if they can compute.
struct nvmlDevice_st { char place; };
struct nvmlGpuInstance_st { char place; };
struct nvmlComputeInstance_st { char place; };
static struct nvmlDevice_st devices[MAX_GPUS][1 + INSTANCE_IDS];
static struct nvmlGpuInstance_st gpu_instances[MAX_GPUS][INSTANCE_IDS];
static struct nvmlComputeInstance_st compute_instances[MAX_GPUS][INSTANCE_IDS];

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

static nvmlReturn_t look_up_gpu(unsigned index, struct gpu_state *out) {
  struct gpu_state all[MAX_GPUS];
  int count = driver_gpus(all);
  if (count < 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  for (int i = 0; i < count; i++)
    if (all[i].index == index) {
      *out = all[i];
      return out->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    }
  return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t look_up_instance(unsigned gpu, unsigned id, struct gpu_instance *out) {
  struct gpu_instance all[MAX_INSTANCES];
  int count = driver_instances(gpu, all);
  if (count < 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  for (int i = 0; i < count; i++)
    if (all[i].id == id) {
      *out = all[i];
      return NVML_SUCCESS;
    }
  return NVML_ERROR_NOT_FOUND;
}

static unsigned gpu_of(nvmlDevice_t device) { return (device.handle - devices[0]) / (1 + INSTANCE_IDS); }
static unsigned place_of(nvmlDevice_t device) { return (device.handle - devices[0]) % (1 + INSTANCE_IDS); }
static int is_mig(nvmlDevice_t device) { return device.handle && place_of(device); }

static nvmlReturn_t look_up(nvmlDevice_t device, struct gpu_state *out) {
  if (!device.handle || is_mig(device)) return NVML_ERROR_INVALID_ARGUMENT;
  return look_up_gpu(gpu_of(device), out);
}

static nvmlReturn_t look_up_mig(nvmlDevice_t device, struct gpu_state *gpu, struct gpu_instance *out) {
  if (!is_mig(device)) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t found = look_up_gpu(gpu_of(device), gpu);
  return found == NVML_SUCCESS ? look_up_instance(gpu->index, place_of(device) - 1, out) : found;
}

// The head of a getter: `gpu` and `model` of the device, or return. `out` is what the caller wants filled.
#define LOOK_UP(device, out)                                   \
  struct gpu_state gpu;                                        \
  if (!(out)) return NVML_ERROR_INVALID_ARGUMENT;              \
  nvmlReturn_t found = look_up(device, &gpu);                  \
  if (found != NVML_SUCCESS) return found;                     \
  const struct model *model = &MODELS[gpu.model];              \
  (void)model

// The same of a MIG device, with its `instance` and its `profile`.
#define LOOK_UP_MIG(device, out)                               \
  struct gpu_state gpu;                                        \
  struct gpu_instance instance;                                \
  if (!(out)) return NVML_ERROR_INVALID_ARGUMENT;              \
  nvmlReturn_t found = look_up_mig(device, &gpu, &instance);   \
  if (found != NVML_SUCCESS) return found;                     \
  const struct profile *profile = &PROFILES[instance.profile]; \
  (void)profile

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
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
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
      device->handle = &devices[all[i].index][0];              \
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

static nvmlReturn_t find_gpu(const char *uuid, nvmlDevice_t *device) { FIND(device, !strcmp(all[i].uuid, uuid)); }
static nvmlReturn_t find_mig(const char *uuid, nvmlDevice_t *device) {
  struct gpu_state all[MAX_GPUS];
  struct gpu_instance parts[MAX_INSTANCES];
  int count = driver_gpus(all);
  for (int i = 0; i < count; i++) {
    int there = all[i].mig ? driver_instances(all[i].index, parts) : 0;
    for (int j = 0; j < there; j++)
      if (parts[j].compute && !strcmp(parts[j].uuid, uuid)) {
        device->handle = &devices[all[i].index][1 + parts[j].id];
        return NVML_SUCCESS;
      }
  }
  return count < 0 ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  if (!uuid || !device) return NVML_ERROR_INVALID_ARGUMENT;
  return (strncmp(uuid, "MIG-", 4) ? find_gpu : find_mig)(uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device) {
  unsigned domain, bus;
  if (!address || sscanf(address, "%x:%x:", &domain, &bus) != 2) return NVML_ERROR_INVALID_ARGUMENT;
  FIND(device, all[i].domain == domain && all[i].bus == bus);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *address, nvmlDevice_t *device) { return nvmlDeviceGetHandleByPciBusId_v2(address, device); }

// ---- what a device is

static nvmlReturn_t mig_name(nvmlDevice_t device, char *out, unsigned size) {
  char name[120];
  LOOK_UP_MIG(device, out);
  snprintf(name, sizeof name, "%s MIG %s", MODELS[gpu.model].name, profile->name);
  return copy(out, size, name);
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned size) {
  if (is_mig(device)) return mig_name(device, out, size);
  LOOK_UP(device, out);
  return copy(out, size, model->name);
}
static nvmlReturn_t mig_uuid(nvmlDevice_t device, char *out, unsigned size) {
  LOOK_UP_MIG(device, out);
  return copy(out, size, instance.uuid);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned size) {
  if (is_mig(device)) return mig_uuid(device, out, size);
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

// Of a MIG device: its place among those of its GPU.
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *out) {
  if (is_mig(device)) {
    nvmlDevice_t other;
    for (unsigned i = 0; out && i < MAX_INSTANCES; i++)
      if (nvmlDeviceGetMigDeviceHandleByIndex((nvmlDevice_t){&devices[gpu_of(device)][0]}, i, &other) == NVML_SUCCESS && other.handle == device.handle) {
        *out = i;
        return NVML_SUCCESS;
      }
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  LOOK_UP(device, out);
  *out = gpu.index;
  return NVML_SUCCESS;
}
GETTER(nvmlDeviceGetMinorNumber, unsigned, gpu.index)
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *out) {
  char release[64];
  unsigned persistence;
  LOOK_UP(device, out);
  nvmlReturn_t asked = ask_driver(release, &persistence);
  if (asked == NVML_SUCCESS) *out = persistence ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return asked;
}
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out) {
  static const char *const STATES[] = {"N/A", "Not Started", "In Progress", "Completed"}; // NVML_GPU_FABRIC_STATE_*
  char state[32];
  LOOK_UP(device, out);
  if (driver_fabric(state, sizeof state)) return NVML_ERROR_UNKNOWN;
  *out = (nvmlGpuFabricInfo_t){.status = NVML_SUCCESS};
  for (unsigned i = 0; i < sizeof STATES / sizeof *STATES; i++)
    if (!strcmp(state, STATES[i])) out->state = i;
  return NVML_SUCCESS;
}
GETTER(nvmlDeviceGetBrand, nvmlBrandType_t, model->brand)
GETTER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, model->architecture)
GETTER(nvmlDeviceGetNumGpuCores, unsigned, model->cores)
GETTER(nvmlDeviceGetMemoryBusWidth, unsigned, model->bus_bits)
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuTopologyLevel_t *out) {
  LOOK_UP(device, other.handle ? out : NULL);
  *out = NVML_TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

// ---- MIG. What a GPU answers that is not split is what an H200 answered with driver 580.159.04.

GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned, gpu.mig ? MAX_INSTANCES : 0)
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
  LOOK_UP(device, current && pending ? current : NULL);
  if (!model->mig) return NVML_ERROR_NOT_SUPPORTED;
  *current = *pending = gpu.mig;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out) {
  if (!device.handle || !out) return NVML_ERROR_INVALID_ARGUMENT;
  *out = is_mig(device);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *out) {
  LOOK_UP(device, out);
  struct gpu_instance all[MAX_INSTANCES];
  int count = gpu.mig ? driver_instances(gpu.index, all) : 0;
  for (int i = 0; i < count; i++)
    if (all[i].compute && !index--) {
      out->handle = &devices[gpu.index][1 + all[i].id];
      return NVML_SUCCESS;
    }
  return NVML_ERROR_NOT_FOUND;
}

#define MIG_GETTER(function, type, value)                      \
  nvmlReturn_t function(nvmlDevice_t device, type *out) {      \
    LOOK_UP_MIG(device, out);                                  \
    *out = value;                                              \
    return NVML_SUCCESS;                                       \
  }

MIG_GETTER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t, ((nvmlDevice_t){&devices[gpu.index][0]}))
MIG_GETTER(nvmlDeviceGetGpuInstanceId, unsigned, instance.id)
MIG_GETTER(nvmlDeviceGetComputeInstanceId, unsigned, 0)
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out) {
  if (device.handle && !is_mig(device)) return NVML_ERROR_NOT_SUPPORTED;
  LOOK_UP_MIG(device, out);
  *out = (nvmlDeviceAttributes_t){.multiprocessorCount = profile->sms, .sharedCopyEngineCount = profile->copy, .sharedDecoderCount = profile->decoders,
                                  .sharedJpegCount = profile->jpeg, .sharedOfaCount = profile->ofa, .gpuInstanceSliceCount = profile->slices,
                                  .computeInstanceSliceCount = profile->slices, .memorySizeMB = profile->memory_mib};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *out) { return nvmlDeviceGetAttributes_v2(device, out); }

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned number, nvmlGpuInstanceProfileInfo_t *out) {
  LOOK_UP(device, out);
  if (number >= NVML_GPU_INSTANCE_PROFILE_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; model->mig && i < PROFILE_COUNT; i++)
    if (PROFILES[i].number == number) {
      const struct profile *p = &PROFILES[i];
      *out = (nvmlGpuInstanceProfileInfo_t){.id = p->id, .sliceCount = p->slices, .instanceCount = p->most, .multiprocessorCount = p->sms,
                                            .copyEngineCount = p->copy, .decoderCount = p->decoders, .jpegCount = p->jpeg, .ofaCount = p->ofa,
                                            .memorySizeMB = p->memory_mib};
      return NVML_SUCCESS;
    }
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *out) {
  struct gpu_instance instance;
  LOOK_UP(device, out);
  found = look_up_instance(gpu.index, id, &instance);
  if (found == NVML_SUCCESS) out->handle = &gpu_instances[gpu.index][id];
  return found;
}
nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned profile_id, nvmlGpuInstance_t *out, unsigned *count) {
  LOOK_UP(device, out && count ? count : NULL);
  struct gpu_instance all[MAX_INSTANCES];
  int there = gpu.mig ? driver_instances(gpu.index, all) : 0;
  *count = 0;
  for (int i = 0; i < there; i++)
    if (PROFILES[all[i].profile].id == profile_id) out[(*count)++].handle = &gpu_instances[gpu.index][all[i].id];
  return there < 0 ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
}

// The head of what is asked of a GPU instance.
#define LOOK_UP_INSTANCE(of, out)                              \
  struct gpu_instance instance;                                \
  if (!(of).handle || !(out)) return NVML_ERROR_INVALID_ARGUMENT; \
  unsigned gpu = ((of).handle - gpu_instances[0]) / INSTANCE_IDS, id = ((of).handle - gpu_instances[0]) % INSTANCE_IDS; \
  nvmlReturn_t found = look_up_instance(gpu, id, &instance);   \
  if (found != NVML_SUCCESS) return found;                     \
  const struct profile *profile = &PROFILES[instance.profile]; \
  (void)profile

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t of, nvmlGpuInstanceInfo_t *out) {
  LOOK_UP_INSTANCE(of, out);
  *out = (nvmlGpuInstanceInfo_t){{&devices[gpu][0]}, id, profile->id, {instance.start, profile->size}};
  return NVML_SUCCESS;
}

// One compute instance takes all of a GPU instance here: its profile is the one of as many slices.
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t of, unsigned number, unsigned engine, nvmlComputeInstanceProfileInfo_t *out) {
  LOOK_UP_INSTANCE(of, out);
  if (number >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT || engine >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned whole = profile->slices == 7 ? NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE : profile->slices - 1;
  if (number != whole) return NVML_ERROR_NOT_SUPPORTED;
  *out = (nvmlComputeInstanceProfileInfo_t){.id = number, .sliceCount = profile->slices, .instanceCount = 1, .multiprocessorCount = profile->sms,
                                            .sharedCopyEngineCount = profile->copy, .sharedDecoderCount = profile->decoders,
                                            .sharedJpegCount = profile->jpeg, .sharedOfaCount = profile->ofa};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t of, unsigned wanted, nvmlComputeInstance_t *out) {
  LOOK_UP_INSTANCE(of, out);
  if (wanted || !instance.compute) return NVML_ERROR_NOT_FOUND;
  out->handle = &compute_instances[gpu][id];
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t of, nvmlComputeInstanceInfo_t *out) {
  if (!of.handle) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlGpuInstance_t whole = {gpu_instances[0] + (of.handle - compute_instances[0])};
  LOOK_UP_INSTANCE(whole, out);
  if (!instance.compute) return NVML_ERROR_NOT_FOUND;
  unsigned number = profile->slices == 7 ? NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE : profile->slices - 1;
  *out = (nvmlComputeInstanceInfo_t){{&devices[gpu][0]}, whole, 0, number, {0, profile->slices}};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t of, nvmlComputeInstanceInfo_t *out) { return nvmlComputeInstanceGetInfo_v2(of, out); }

// ---- what an administrator does: split a GPU, and take that back

static nvmlReturn_t refused(const char *answer) {
  if (strstr(answer, "in use")) return NVML_ERROR_IN_USE;
  if (strstr(answer, "resources")) return NVML_ERROR_INSUFFICIENT_RESOURCES;
  if (strstr(answer, "profile")) return NVML_ERROR_INVALID_ARGUMENT;
  return strstr(answer, "supported") ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNKNOWN;
}

#define ORDER(answer, ...)                                     \
  if (geteuid()) return NVML_ERROR_NO_PERMISSION;              \
  if (driver_order(answer, sizeof answer, __VA_ARGS__) < 0) return refused(answer)

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation) {
  char answer[64];
  LOOK_UP(device, activation);
  ORDER(answer, "mig %u %u", gpu.index, mode);
  return *activation = NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned profile_id, nvmlGpuInstance_t *out) {
  char answer[64];
  unsigned id;
  LOOK_UP(device, out);
  ORDER(answer, "partition %u %u", gpu.index, profile_id);
  if (sscanf(answer, "instance %u", &id) != 1) return NVML_ERROR_UNKNOWN;
  out->handle = &gpu_instances[gpu.index][id];
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t of) {
  char answer[64];
  LOOK_UP_INSTANCE(of, of.handle);
  ORDER(answer, "merge %u/%u", gpu, id);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t of, unsigned profile_id, nvmlComputeInstance_t *out) {
  char answer[64];
  nvmlComputeInstanceProfileInfo_t wanted;
  nvmlReturn_t known = nvmlGpuInstanceGetComputeInstanceProfileInfo(of, profile_id, 0, &wanted);
  if (known != NVML_SUCCESS) return known;
  LOOK_UP_INSTANCE(of, out);
  ORDER(answer, "compute %u/%u 1", gpu, id);
  out->handle = &compute_instances[gpu][id];
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t of) {
  char answer[64];
  if (!of.handle) return NVML_ERROR_INVALID_ARGUMENT;
  ptrdiff_t place = of.handle - compute_instances[0];
  ORDER(answer, "compute %u/%u 0", (unsigned)(place / INSTANCE_IDS), (unsigned)(place % INSTANCE_IDS));
  return NVML_SUCCESS;
}

// ---- what a device does: all that is not utilisation or memory is made from these two

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
  LOOK_UP(device, out);
  if (gpu.mig) return NVML_ERROR_NOT_SUPPORTED; // as nvml.h says
  *out = (nvmlUtilization_t){.gpu = gpu.util, .memory = gpu.mem};
  return NVML_SUCCESS;
}
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
static nvmlReturn_t mig_memory(nvmlDevice_t device, unsigned long long *total, unsigned long long *used) {
  LOOK_UP_MIG(device, total);
  *total = profile->memory_mib * MIB;
  *used = instance.used_bytes;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
  if (is_mig(device)) {
    nvmlReturn_t read = out ? mig_memory(device, &out->total, &out->used) : NVML_ERROR_INVALID_ARGUMENT;
    if (read == NVML_SUCCESS) out->free = out->total - out->used;
    return read;
  }
  LOOK_UP(device, out);
  unsigned long long total = model->memory_mib * MIB, used = model->reserved_mib * MIB + gpu.used_bytes; // version 1 knows no reserved memory
  *out = (nvmlMemory_t){.total = total, .used = used, .free = total - used};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
  if (is_mig(device)) {
    nvmlReturn_t read = out ? mig_memory(device, &out->total, &out->used) : NVML_ERROR_INVALID_ARGUMENT;
    if (read == NVML_SUCCESS) out->free = out->total - out->used, out->reserved = 0;
    return read;
  }
  LOOK_UP(device, out);
  out->total = model->memory_mib * MIB;
  out->reserved = model->reserved_mib * MIB;
  out->used = gpu.used_bytes;
  out->free = out->total - out->reserved - out->used;
  return NVML_SUCCESS;
}

// ---- the processes on a device

// By the driver's name of a GPU, and the ids of an instance or what stands for none.
static nvmlReturn_t list_processes(const char *of, unsigned id, unsigned compute, unsigned *count, nvmlProcessInfo_t *out) {
  struct gpu_process running[MAX_PROCESSES];
  int all = driver_processes(of, running);
  if (all < 0) return NVML_ERROR_UNKNOWN;
  unsigned room = *count;
  *count = all;
  if (room < (unsigned)all) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (int i = 0; out && i < all; i++)
    out[i] = (nvmlProcessInfo_t){.pid = running[i].pid, .usedGpuMemory = running[i].used_bytes, .gpuInstanceId = id, .computeInstanceId = compute};
  return NVML_SUCCESS;
}
static nvmlReturn_t mig_processes(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *out) {
  char of[24];
  LOOK_UP_MIG(device, count);
  snprintf(of, sizeof of, "%u/%u", gpu.index, instance.id);
  return list_processes(of, instance.id, 0, count, out);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *out) {
  char of[24];
  if (is_mig(device)) return mig_processes(device, count, out);
  LOOK_UP(device, count);
  snprintf(of, sizeof of, "%u", gpu.index);
  return list_processes(of, 0xffffffff, 0xffffffff, count, out);
}

// One sample a process that ran a kernel, of the last second.
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned *count, unsigned long long since) {
  LOOK_UP(device, count);
  struct gpu_process running[MAX_PROCESSES];
  struct timespec now;
  char of[24];
  if (gpu.mig) return NVML_ERROR_NOT_SUPPORTED;
  snprintf(of, sizeof of, "%u", gpu.index);
  int all = driver_processes(of, running);
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
nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned id, nvmlGpmSample_t sample) {
  struct gpu_instance instance;
  LOOK_UP(device, sample.handle);
  found = look_up_instance(gpu.index, id, &instance);
  if (found == NVML_SUCCESS) *sample.handle = (struct nvmlGpmSample_st){.prof = instance.prof, .mem = instance.mem};
  return found;
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
      *out = (nvmlEventData_t){.device = {&devices[index][0]}, .eventType = nvmlEventTypeXidCriticalError, .eventData = all[i].xid,
                               .gpuInstanceId = 0xffffffff, .computeInstanceId = 0xffffffff};
      return NVML_SUCCESS;
    }
    if (waited >= timeout_ms) return NVML_ERROR_TIMEOUT;
    nanosleep(&step, NULL);
  }
}
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t handle, nvmlEventData_t *out, unsigned timeout_ms) { return nvmlEventSetWait_v2(handle, out, timeout_ms); }
