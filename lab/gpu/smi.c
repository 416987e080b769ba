// nvidia-smi of the lab: the default table, `-L`, and `--query-gpu=FIELDS --format=csv[,noheader][,nounits]`.
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
  nvmlMemory_v2_t memory;
};

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

static struct reading read_gpu(unsigned index) {
  struct reading r = {.index = index, .memory.version = nvmlMemory_v2};
  nvmlDevice_t device;
  check(nvmlDeviceGetHandleByIndex_v2(index, &device));
  check(nvmlSystemGetDriverVersion(r.driver, sizeof r.driver));
  check(nvmlDeviceGetName(device, r.name, sizeof r.name));
  check(nvmlDeviceGetUUID(device, r.uuid, sizeof r.uuid));
  check(nvmlDeviceGetPciInfo_v3(device, &r.pci));
  check(nvmlDeviceGetPersistenceMode(device, &r.persistence));
  check(nvmlDeviceGetUtilizationRates(device, &r.util));
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
    printf("|      %3uC %5uW / %5uW               | %8lluMiB / %6lluMiB | %7u%% %11s |\n", r.celsius, r.power_mw / 1000, r.power_limit_mw / 1000,
           r.memory.used >> 20, r.memory.total >> 20, r.util.gpu, "");
    puts("+-----------------------------------------+------------------------+----------------------+");
  }
}

int main(int argc, char **argv) {
  const char *fields = NULL, *format = "";
  bool list = false;
  unsigned count;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-L") || !strcmp(argv[i], "--list-gpus")) list = true;
    else if (!strncmp(argv[i], "--query-gpu=", 12)) fields = argv[i] + 12;
    else if (!strncmp(argv[i], "--format=csv", 12)) format = argv[i] + 12;
    else {
      printf("Invalid combination of input arguments. The lab's nvidia-smi knows -L and --query-gpu=FIELDS --format=csv.\n");
      return 1;
    }
  }
  check(nvmlInit_v2());
  check(nvmlDeviceGetCount_v2(&count));
  if (fields) return query(fields, format, count);
  if (!list) table(count);
  for (unsigned i = 0; list && i < count; i++) {
    struct reading r = read_gpu(i);
    printf("GPU %u: %s (UUID: %s)\n", i, r.name, r.uuid);
  }
  return 0;
}
