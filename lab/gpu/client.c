// The clients' side of the driver's socket.
#include "driver.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define HOLDS_MS 5

int driver_connect(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  machine_path(address.sun_path, sizeof address.sun_path, "/run/nvidia-persistenced/socket");
  int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection >= 0 && connect(connection, (struct sockaddr *)&address, sizeof address) < 0) {
    close(connection);
    return -1;
  }
  return connection;
}

// An answer ends with an empty line, so that it may have several.
int driver_request(int connection, const char *request, char *answer, size_t size) {
  char line[128];
  int length = snprintf(line, sizeof line, "%s\n", request);
  if (send(connection, line, length, MSG_NOSIGNAL) != length) return -1;
  for (size_t got = 0; got + 1 < size;) {
    ssize_t more = recv(connection, answer + got, size - 1 - got, 0);
    if (more <= 0) return -1;
    got += more;
    answer[got] = 0;
    if (got >= 2 && !strcmp(answer + got - 2, "\n\n")) return got;
  }
  return -1;
}

static int ask_for_gpus(struct gpu_state out[MAX_GPUS]) {
  char answer[LONGEST_ANSWER], path[128], device[32];
  int connection = driver_connect(), count = 0;
  if (connection < 0) return -1;
  int length = driver_request(connection, "state", answer, sizeof answer);
  close(connection);
  if (length < 0) return -1;
  for (char *line = strchr(answer, '\n'); line && line[1] != '\n'; line = strchr(line + 1, '\n')) {
    struct gpu_state *gpu = &out[count];
    if (sscanf(line + 1, GPU_STATE_FORMAT, &gpu->index, &gpu->model, &gpu->domain, &gpu->bus, gpu->uuid, &gpu->util, &gpu->prof, &gpu->mem,
               &gpu->used_bytes, &gpu->xid, &gpu->lost, &gpu->mig) != GPU_STATE_FIELDS)
      return -1;
    snprintf(device, sizeof device, "/dev/nvidia%u", gpu->index);
    struct stat node;
    if (stat(machine_path(path, sizeof path, device), &node) == 0) count++; // a container sees what it was given
  }
  return count;
}

// An exporter asks some twenty things of each GPU in one go: the answer holds for that long.
int driver_gpus(struct gpu_state out[MAX_GPUS]) {
  static _Thread_local struct gpu_state known[MAX_GPUS];
  static _Thread_local int count = -1;
  static _Thread_local struct timespec asked;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  long age_ms = (now.tv_sec - asked.tv_sec) * 1000 + (now.tv_nsec - asked.tv_nsec) / 1000000;
  if (count < 0 || age_ms >= HOLDS_MS) {
    count = ask_for_gpus(known);
    asked = now;
  }
  if (count > 0) memcpy(out, known, count * sizeof *out);
  return count;
}

static bool is_there(const char *format, unsigned number) {
  char node[64], path[160];
  struct stat found;
  snprintf(node, sizeof node, format, number);
  return stat(machine_path(path, sizeof path, node), &found) == 0;
}

// A container has the nodes of the instances that it was given, and those of all others are not there.
int driver_instances(unsigned gpu, struct gpu_instance out[MAX_INSTANCES]) {
  char request[32], answer[LONGEST_ANSWER];
  int connection = driver_connect(), count = 0;
  if (connection < 0) return -1;
  snprintf(request, sizeof request, "instances %u", gpu);
  int length = driver_request(connection, request, answer, sizeof answer);
  close(connection);
  if (length < 0 || !strncmp(answer, "error", 5)) return -1;
  for (char *line = strchr(answer, '\n'); line && line[1] != '\n' && count < MAX_INSTANCES; line = strchr(line + 1, '\n')) {
    struct gpu_instance *found = &out[count];
    if (sscanf(line + 1, GPU_INSTANCE_FORMAT, &found->id, &found->profile, &found->start, &found->compute, found->uuid, &found->prof, &found->mem,
               &found->used_bytes) != GPU_INSTANCE_FIELDS)
      return -1;
    if (is_there("/dev/nvidia-caps/nvidia-cap%u", instance_cap(gpu, found->id)) &&
        (!found->compute || is_there("/dev/nvidia-caps/nvidia-cap%u", compute_cap(gpu, found->id, 0))))
      count++;
  }
  return count;
}

int driver_order(char *answer, size_t size, const char *format, ...) {
  char request[96];
  va_list values;
  va_start(values, format);
  vsnprintf(request, sizeof request, format, values);
  va_end(values);
  int connection = driver_connect(), length = -1;
  *answer = 0;
  if (connection < 0) return -1;
  length = driver_request(connection, request, answer, size);
  close(connection);
  return length < 0 || !strncmp(answer, "error", 5) ? -1 : 0;
}

int driver_processes(const char *gpu, struct gpu_process out[MAX_PROCESSES]) {
  char request[32], answer[LONGEST_ANSWER];
  int connection = driver_connect(), count = 0;
  if (connection < 0) return -1;
  snprintf(request, sizeof request, "processes %s", gpu);
  int length = driver_request(connection, request, answer, sizeof answer);
  close(connection);
  if (length < 0 || !strncmp(answer, "error", 5)) return -1;
  for (char *line = strchr(answer, '\n'); line && line[1] != '\n' && count < MAX_PROCESSES; line = strchr(line + 1, '\n'), count++)
    if (sscanf(line + 1, GPU_PROCESS_FORMAT, &out[count].pid, &out[count].util, &out[count].used_bytes) != 3) return -1;
  return count;
}

int driver_fabric(char *state, size_t size) {
  char answer[128];
  int connection = driver_connect();
  int length = connection < 0 ? -1 : driver_request(connection, "fabric", answer, sizeof answer);
  if (connection >= 0) close(connection);
  if (length < 0 || strncmp(answer, "fabric ", 7)) return -1;
  snprintf(state, size, "%.*s", (int)strcspn(answer + 7, "\n"), answer + 7);
  return 0;
}
