// nvidia-smi of the lab: the default table, `-L`, `-q` as far as the fabric goes, `--query-gpu=FIELDS --format=csv[,noheader][,nounits]`, and of MIG `-i GPU -mig 0|1`,
// `mig -i GPU -cgi PROFILES -C`, `mig -lgi`, `mig -dci` and `mig -dgi`.
#include "nvml.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
  char name[96], uuid[96], driver[80];
  nvmlEnableState_t persistence;
  unsigned index, power_mw, power_limit_mw, celsius;
  nvmlPciInfo_t pci;
  nvmlUtilization_t util;
  bool has_util; // a GPU in MIG mode has none
  unsigned mig, mig_devices;
  bool can_split;
  nvmlMemory_v2_t memory;
};

// By nvidia-smi's word for a profile: its id or its name.
static const char *const PROFILES[][2] = {{"19", "1g.10gb"}, {"20", "1g.10gb+me"}, {"15", "1g.20gb"}, {"14", "2g.20gb"}, {"9", "3g.40gb"},
                                          {"5", "4g.40gb"},  {"0", "7g.80gb"}};
#define PROFILE_COUNT (sizeof PROFILES / sizeof *PROFILES)

static void check(nvmlReturn_t result) {
  if (result == NVML_SUCCESS) return;
  if (result == NVML_ERROR_DRIVER_NOT_LOADED)
    puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n");
  else if (result == NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    printf("Failed to initialize NVML: %s\n", nvmlErrorString(result));
  else
    printf("Unable to determine the device handle for GPU: %s\n", nvmlErrorString(result));
  exit(result);
}

static nvmlDevice_t gpu_at(unsigned index) {
  nvmlDevice_t device;
  check(nvmlDeviceGetHandleByIndex_v2(index, &device));
  return device;
}

static struct reading read_gpu(unsigned index) {
  struct reading r = {.index = index, .memory.version = nvmlMemory_v2};
  nvmlDevice_t device = gpu_at(index);
  unsigned pending;
  check(nvmlSystemGetDriverVersion(r.driver, sizeof r.driver));
  check(nvmlDeviceGetName(device, r.name, sizeof r.name));
  check(nvmlDeviceGetUUID(device, r.uuid, sizeof r.uuid));
  check(nvmlDeviceGetPciInfo_v3(device, &r.pci));
  check(nvmlDeviceGetPersistenceMode(device, &r.persistence));
  nvmlReturn_t busy = nvmlDeviceGetUtilizationRates(device, &r.util);
  if (busy != NVML_ERROR_NOT_SUPPORTED) check(busy);
  r.has_util = busy == NVML_SUCCESS;
  r.can_split = nvmlDeviceGetMigMode(device, &r.mig, &pending) == NVML_SUCCESS;
  check(nvmlDeviceGetMaxMigDeviceCount(device, &r.mig_devices));
  check(nvmlDeviceGetMemoryInfo_v2(device, &r.memory));
  check(nvmlDeviceGetPowerUsage(device, &r.power_mw));
  check(nvmlDeviceGetEnforcedPowerLimit(device, &r.power_limit_mw));
  check(nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &r.celsius));
  return r;
}

// One field of a query; false if it is not known.
static bool field(const struct reading *r, const char *name, bool units, char *out, size_t size) {
  if (!strcmp(name, "index")) snprintf(out, size, "%u", r->index);
  else if (!strcmp(name, "name")) snprintf(out, size, "%s", r->name);
  else if (!strcmp(name, "uuid")) snprintf(out, size, "%s", r->uuid);
  else if (!strcmp(name, "driver_version")) snprintf(out, size, "%s", r->driver);
  else if (!strcmp(name, "pci.bus_id")) snprintf(out, size, "%s", r->pci.busId);
  else if (!strcmp(name, "persistence_mode")) snprintf(out, size, "%s", r->persistence ? "Enabled" : "Disabled");
  else if (!strncmp(name, "mig.mode.", 9)) snprintf(out, size, "%s", r->can_split ? r->mig ? "Enabled" : "Disabled" : "[N/A]");
  else if (!strcmp(name, "utilization.gpu") && !r->has_util) snprintf(out, size, "[N/A]");
  else if (!strcmp(name, "utilization.gpu")) snprintf(out, size, "%u%s", r->util.gpu, units ? " %" : "");
  else if (!strcmp(name, "memory.used")) snprintf(out, size, "%llu%s", r->memory.used >> 20, units ? " MiB" : "");
  else if (!strcmp(name, "memory.total")) snprintf(out, size, "%llu%s", r->memory.total >> 20, units ? " MiB" : "");
  else return false;
  return true;
}

static const char *unit(const char *name) {
  return !strcmp(name, "utilization.gpu") ? " [%]" : !strncmp(name, "memory.", 7) ? " [MiB]" : "";
}

static int query(const char *fields, const char *format, unsigned count) {
  bool header = !strstr(format, "noheader"), units = !strstr(format, "nounits");
  for (int row = header ? -1 : 0; row < (int)count; row++) {
    struct reading r = row < 0 ? (struct reading){0} : read_gpu(row);
    char names[512], value[128], *rest = names;
    snprintf(names, sizeof names, "%s", fields);
    for (char *name, *between = ""; (name = strsep(&rest, ",")); between = ", ") {
      if (!field(&r, name, units, value, sizeof value)) {
        printf("Field \"%s\" is not a valid field to query.\n\n", name);
        return 2;
      }
      if (row < 0) printf("%s%s%s", between, name, units ? unit(name) : "");
      else printf("%s%s", between, value);
    }
    putchar('\n');
  }
  return 0;
}

static void table(unsigned count) {
  const char *line = "+-----------------------------------------------------------------------------------------+";
  char driver[80];
  int cuda;
  check(nvmlSystemGetDriverVersion(driver, sizeof driver));
  check(nvmlSystemGetCudaDriverVersion_v2(&cuda));
  printf("%s\n| NVIDIA-SMI %-22s Driver Version: %-18s CUDA Version: %d.%-5d |\n", line, driver, driver, cuda / 1000, cuda % 1000 / 10);
  puts("|-----------------------------------------+------------------------+----------------------+");
  puts("| GPU  Name                               | Bus-Id                 |                      |");
  puts("|      Temp   Pwr:Usage/Cap               |           Memory-Usage | GPU-Util             |");
  puts("|=========================================+========================+======================|");
  for (unsigned i = 0; i < count; i++) {
    struct reading r = read_gpu(i);
    printf("| %3u  %-34s | %-22s | %20s |\n", i, r.name, r.pci.busId, "");
    char busy[16] = "N/A";
    if (r.has_util) snprintf(busy, sizeof busy, "%u%%", r.util.gpu);
    printf("|      %3uC %5uW / %5uW               | %8lluMiB / %6lluMiB | %8s %11s |\n", r.celsius, r.power_mw / 1000, r.power_limit_mw / 1000,
           r.memory.used >> 20, r.memory.total >> 20, busy, r.can_split ? r.mig ? "MIG on" : "MIG off" : "");
    puts("+-----------------------------------------+------------------------+----------------------+");
  }
}

// As the real one lists them: the profile's name is what follows `MIG ` in the device's.
static void list_mig(unsigned gpu, unsigned most) {
  for (unsigned i = 0; i < most; i++) {
    char name[128], uuid[96];
    nvmlDevice_t part;
    nvmlReturn_t found = nvmlDeviceGetMigDeviceHandleByIndex(gpu_at(gpu), i, &part);
    if (found == NVML_ERROR_NOT_FOUND) continue;
    check(found);
    check(nvmlDeviceGetName(part, name, sizeof name));
    check(nvmlDeviceGetUUID(part, uuid, sizeof uuid));
    printf("  MIG %-11s Device %2u: (UUID: %s)\n", strstr(name, " MIG ") + 5, i, uuid);
  }
}

static int list(unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    struct reading r = read_gpu(i);
    printf("GPU %u: %s (UUID: %s)\n", i, r.name, r.uuid);
    list_mig(i, r.mig_devices);
  }
  return 0;
}

// A part of what the real one says, in its words.
static int describe(unsigned count) {
  static const char *const STATES[] = {"N/A", "Not Started", "In Progress", "Completed"};
  char driver[80];
  check(nvmlSystemGetDriverVersion(driver, sizeof driver));
  printf("\n==============NVSMI LOG==============\n\n%-42s: %s\n%-42s: %u\n", "Driver Version", driver, "Attached GPUs", count);
  for (unsigned i = 0; i < count; i++) {
    struct reading r = read_gpu(i);
    nvmlGpuFabricInfo_t fabric;
    check(nvmlDeviceGetGpuFabricInfo(gpu_at(i), &fabric));
    printf("GPU %s\n    %-38s: %s\n    %-38s: P0\n    Fabric\n        %-34s: %s\n        %-34s: %s\n", r.pci.busId, "Product Name", r.name,
           "Performance State", "State", STATES[fabric.state], "Status", fabric.state == NVML_GPU_FABRIC_STATE_COMPLETED ? "Success" : "N/A");
  }
  return 0;
}

// ---- MIG

static int switch_mig(unsigned gpu, unsigned mode) {
  struct reading r = read_gpu(gpu);
  nvmlReturn_t activation, set = nvmlDeviceSetMigMode(gpu_at(gpu), mode, &activation);
  if (set == NVML_SUCCESS) printf("%s MIG Mode for GPU %s\nAll done.\n", mode ? "Enabled" : "Disabled", r.pci.busId);
  else printf("Unable to %s MIG Mode for GPU %s: %s\n", mode ? "enable" : "disable", r.pci.busId, nvmlErrorString(set));
  return set;
}

static int profile_row(const char *word) {
  for (unsigned i = 0; i < PROFILE_COUNT; i++)
    if (!strcmp(word, PROFILES[i][0]) || !strcmp(word, PROFILES[i][1])) return i;
  printf("Option \"-cgi\" is not recognized: %s is no profile.\n", word);
  exit(1);
}

static int create(unsigned gpu, const char *words, bool compute) {
  char copy[256], *rest = copy;
  snprintf(copy, sizeof copy, "%s", words);
  for (char *word; (word = strsep(&rest, ","));) {
    int row = profile_row(word);
    nvmlGpuInstance_t part;
    nvmlGpuInstanceInfo_t info;
    nvmlReturn_t done = nvmlDeviceCreateGpuInstance(gpu_at(gpu), atoi(PROFILES[row][0]), &part);
    if (done != NVML_SUCCESS) {
      printf("Unable to create a GPU instance on GPU %2u using profile %s: %s\n", gpu, PROFILES[row][0], nvmlErrorString(done));
      printf("Failed to create GPU instances: %s\n", nvmlErrorString(done));
      return done;
    }
    check(nvmlGpuInstanceGetInfo(part, &info));
    printf("Successfully created GPU instance ID %2u on GPU %2u using profile MIG %s (ID %2s)\n", info.id, gpu, PROFILES[row][1], PROFILES[row][0]);
    nvmlComputeInstanceProfileInfo_t whole;
    nvmlComputeInstance_t can;
    for (unsigned i = 0; compute && i < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; i++) {
      if (nvmlGpuInstanceGetComputeInstanceProfileInfo(part, i, 0, &whole) != NVML_SUCCESS) continue;
      check(nvmlGpuInstanceCreateComputeInstance(part, whole.id, &can));
      printf("Successfully created compute instance ID  0 on GPU %2u GPU instance ID %2u using profile MIG %s (ID %2u)\n", gpu, info.id, PROFILES[row][1],
             whole.id);
    }
  }
  return 0;
}

enum each { LIST, END_COMPUTE, MERGE };

// What is done to each GPU instance of a GPU; how many there are.
static unsigned for_each(unsigned gpu, enum each what, nvmlReturn_t *failed) {
  unsigned seen = 0;
  for (unsigned i = 0; i < PROFILE_COUNT; i++) {
    nvmlGpuInstance_t parts[16];
    unsigned count = 16;
    check(nvmlDeviceGetGpuInstances(gpu_at(gpu), atoi(PROFILES[i][0]), parts, &count));
    for (unsigned j = 0; j < count; j++, seen++) {
      nvmlGpuInstanceInfo_t info;
      nvmlComputeInstance_t can;
      nvmlReturn_t done = NVML_SUCCESS;
      check(nvmlGpuInstanceGetInfo(parts[j], &info));
      if (what == LIST) printf("| %3u  MIG %-14s %5s %8u %9u:%-6u |\n", gpu, PROFILES[i][1], PROFILES[i][0], info.id, info.placement.start, info.placement.size);
      if (what == END_COMPUTE && nvmlGpuInstanceGetComputeInstanceById(parts[j], 0, &can) == NVML_SUCCESS) {
        done = nvmlComputeInstanceDestroy(can);
        if (done == NVML_SUCCESS) printf("Successfully destroyed compute instance ID  0 from GPU %2u GPU instance ID %2u\n", gpu, info.id);
        else printf("Unable to destroy compute instance ID  0 from GPU %2u GPU instance ID %2u: %s\n", gpu, info.id, nvmlErrorString(done));
      }
      if (what == MERGE) {
        done = nvmlGpuInstanceDestroy(parts[j]);
        if (done == NVML_SUCCESS) printf("Successfully destroyed GPU instance ID %2u from GPU %2u\n", info.id, gpu);
        else printf("Unable to destroy GPU instance ID %2u from GPU %2u: %s\n", info.id, gpu, nvmlErrorString(done));
      }
      if (done != NVML_SUCCESS) *failed = done;
    }
  }
  return seen;
}

static int mig(int argc, char **argv, unsigned count) {
  const char *profiles = NULL;
  unsigned first = 0, last = count;
  bool compute = false;
  int what = -1;
  for (int i = 0; i < argc; i++) {
    if (!strcmp(argv[i], "-i") && i + 1 < argc) first = atoi(argv[++i]), last = first + 1;
    else if (!strcmp(argv[i], "-cgi") && i + 1 < argc) profiles = argv[++i];
    else if (!strcmp(argv[i], "-C")) compute = true;
    else if (!strcmp(argv[i], "-lgi")) what = LIST;
    else if (!strcmp(argv[i], "-dci")) what = END_COMPUTE;
    else if (!strcmp(argv[i], "-dgi")) what = MERGE;
    else {
      printf("Option \"%s\" is not recognized. The lab's nvidia-smi mig knows -i, -cgi, -C, -lgi, -dci and -dgi.\n", argv[i]);
      return 1;
    }
  }
  unsigned seen = 0, on = 0;
  nvmlReturn_t failed = NVML_SUCCESS;
  for (unsigned gpu = first; gpu < last && gpu < count; gpu++) {
    if (!read_gpu(gpu).mig) continue;
    on++;
    if (profiles && (failed = create(gpu, profiles, compute))) return failed;
    if (what >= 0) seen += for_each(gpu, what, &failed);
  }
  if (!on) puts("No MIG-enabled devices found.");
  else if (what >= 0 && !seen) puts("No GPU instances found: Not Found");
  return on && what > LIST && !seen ? NVML_ERROR_NOT_FOUND : failed;
}

int main(int argc, char **argv) {
  const char *fields = NULL, *format = "", *mode = NULL;
  bool listed = false, described = false;
  unsigned count, gpu = 0, only = 0;
  check(nvmlInit_v2());
  check(nvmlDeviceGetCount_v2(&count));
  if (argc > 1 && !strcmp(argv[1], "mig")) return mig(argc - 2, argv + 2, count);
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-L") || !strcmp(argv[i], "--list-gpus")) listed = true;
    else if (!strcmp(argv[i], "-q") || !strcmp(argv[i], "--query")) described = true;
    else if (!strncmp(argv[i], "--query-gpu=", 12)) fields = argv[i] + 12;
    else if (!strncmp(argv[i], "--format=csv", 12)) format = argv[i] + 12;
    else if (!strcmp(argv[i], "-i") && i + 1 < argc) gpu = atoi(argv[++i]), only = 1;
    else if (!strcmp(argv[i], "-mig") && i + 1 < argc) mode = argv[++i];
    else {
      printf("Invalid combination of input arguments. The lab's nvidia-smi knows -L, -q, --query-gpu=FIELDS --format=csv, -mig and mig.\n");
      return 1;
    }
  }
  if (mode) {
    int failed = 0;
    for (unsigned i = only ? gpu : 0; !failed && i < (only ? gpu + 1 : count); i++) failed = switch_mig(i, atoi(mode));
    return failed;
  }
  if (fields) return query(fields, format, count);
  if (listed) return list(count);
  if (described) return describe(count);
  table(count);
  return 0;
}
