// nvidia-persistenced of the lab: the daemon, and behind it the driver. Its start is what loading the kernel module is on a real
// machine: device nodes appear and /proc/driver/nvidia/version. Those of nvidia-uvm are another module's: nvidia-modprobe makes them. Then it keeps the time of each GPU: kernels run one after the other,
// and utilisation is the part of the last second in which one did.
#include "driver.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_CLIENTS 256
#define INTERVALS 4096 // kernels remembered a GPU: a second of kernels of 250 us
#define WINDOW_NS 1000000000ll
#define SAMPLE_NS (WINDOW_NS / 6) // how often a real driver samples utilisation

struct interval { int64_t begin, end; unsigned pid; };

struct engine { // what runs kernels: a GPU, or an instance of it
  struct { long util, prof, mem; } override; // what to report instead of the truth, -1 for the truth
  struct interval busy[INTERVALS];
  unsigned long launched; // the newest interval is busy[(launched - 1) % INTERVALS]
};
static const struct engine IDLE = {.override = {-1, -1, -1}};

struct gpu {
  struct gpu_state state;
  struct engine engine;
  struct { bool there; struct gpu_instance state; struct engine engine; } instances[MAX_INSTANCES];
};

// A GPU, or one of its instances: `place` is 0, or 1 and on.
struct part { struct gpu *gpu; struct engine *engine; unsigned long long *used_bytes; unsigned place; };

struct client {
  unsigned pid; // as seen from here
  char line[128];
  size_t filled;
  long long held[MAX_GPUS][1 + MAX_INSTANCES]; // bytes, by place
};

static struct gpu gpus[MAX_GPUS];
static unsigned gpu_count;
static char release[64];
static bool persistence = true; // no option means on
static struct client clients[MAX_CLIENTS];
static struct { unsigned points; uint64_t seed; } noise;
// The signals, the listener and the control file, then clients.
#define OWN_FDS 3
static struct pollfd polled[MAX_CLIENTS + OWN_FDS] = {[0 ... MAX_CLIENTS + OWN_FDS - 1] = {.fd = -1, .events = POLLIN}};

static const char *const UVM_NODES[] = {"nvidia-uvm", "nvidia-uvm-tools"};

static void die(const char *what) {
  fprintf(stderr, "nvidia-persistenced: %s: %s\n", what, strerror(errno));
  exit(1);
}

// ---- time of the GPUs

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static int64_t launch(struct engine *gpu, unsigned pid, int64_t nanoseconds) {
  int64_t now = now_ns();
  struct interval *last = gpu->launched ? &gpu->busy[(gpu->launched - 1) % INTERVALS] : NULL;
  int64_t begin = last && last->end > now ? last->end : now;
  gpu->busy[gpu->launched++ % INTERVALS] = (struct interval){begin, begin + nanoseconds, pid};
  return begin + nanoseconds;
}

// Percent of the last second, of one process or, with 0, of all.
static unsigned utilisation(const struct engine *gpu, unsigned pid) {
  int64_t now = now_ns(), busy = 0;
  for (unsigned long i = gpu->launched; i > 0 && gpu->launched - i < INTERVALS; i--) {
    const struct interval *run = &gpu->busy[(i - 1) % INTERVALS];
    int64_t begin = run->begin > now - WINDOW_NS ? run->begin : now - WINDOW_NS, end = run->end < now ? run->end : now;
    if (run->end < now - WINDOW_NS) break;
    if (end > begin && (!pid || run->pid == pid)) busy += end - begin;
  }
  return (busy * 100 + WINDOW_NS / 2) / WINDOW_NS;
}

// ---- paths of the machine

static const char *below(const char *format, ...) {
  static char full[256];
  char path[200];
  va_list values;
  va_start(values, format);
  vsnprintf(path, sizeof path, format, values);
  va_end(values);
  return machine_path(full, sizeof full, path);
}

// The same at each start, different on each server: two FNV-1a hashes of host name and what it is of, stirred by murmur's last step.
static void make_uuid(char *out, size_t size, const char *prefix, const char *of) {
  char seed[128] = "";
  uint64_t half[2] = {14695981039346656037u, 1099511628211u};
  gethostname(seed, sizeof seed - 16);
  snprintf(seed + strlen(seed), 16, "/%s", of);
  for (int i = 0; i < 2; i++) {
    for (const char *c = seed; *c; c++) half[i] = (half[i] ^ (unsigned char)*c) * 1099511628211u;
    half[i] = (half[i] ^ half[i] >> 33) * 0xff51afd7ed558ccdu;
    half[i] ^= half[i] >> 33;
  }
  snprintf(out, size, "%s-%08lx-%04lx-%04lx-%04lx-%012lx", prefix, half[0] >> 32, half[0] >> 16 & 0xffff, half[0] & 0xffff, half[1] >> 48, half[1] & 0xffffffffffff);
}

// ---- requests

static __attribute__((format(printf, 2, 3))) void answer(int fd, const char *format, ...) {
  char text[LONGEST_ANSWER];
  va_list values;
  va_start(values, format);
  int length = vsnprintf(text, sizeof text - 1, format, values);
  va_end(values);
  text[length] = '\n';
  // Who does not read its answer gets none. The answers to the control file go to a file.
  if (send(fd, text, length + 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == ENOTSOCK && write(fd, text, length + 1) < 0) return;
}

static void make_node(const char *name, unsigned major, unsigned minor, unsigned mode) {
  const char *path = below("/dev/%s", name);
  if (mknod(path, S_IFCHR | mode, makedev(major, minor)) < 0 && errno != EEXIST) die(path);
  chmod(path, mode); // whatever the umask
}

// ---- MIG: who may open a node of /dev/nvidia-caps has the instance, and /proc/driver says which node is whose

#define CAPS_MAJOR 510 // any that is free, on a real machine as well

static __attribute__((format(printf, 2, 3))) void write_file(const char *path, const char *format, ...) {
  FILE *file = fopen(path, "w");
  va_list values;
  if (!file) die(path);
  va_start(values, format);
  vfprintf(file, format, values);
  va_end(values);
  fclose(file);
}

static void give_cap(const char *proc, unsigned minor, unsigned mode) {
  char name[48];
  snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", minor);
  make_node(name, CAPS_MAJOR, minor, mode);
  write_file(below("/proc/driver/nvidia/capabilities/%s", proc), "DeviceFileMinor: %u\nDeviceFileMode: %u\nDeviceFileModify: 1\n", minor, mode);
}

static void take_cap(const char *proc, unsigned minor) {
  unlink(below("/proc/driver/nvidia/capabilities/%s", proc));
  unlink(below("/dev/nvidia-caps/nvidia-cap%u", minor));
}

static const char *proc_of(unsigned gpu, unsigned id, const char *file) {
  static char path[64];
  snprintf(path, sizeof path, "gpu%u/mig/gi%u%s", gpu, id, file);
  return path;
}

static void make_instance_nodes(unsigned gpu, unsigned id) {
  mkdir(below("/proc/driver/nvidia/capabilities/%s", proc_of(gpu, id, "")), 0555);
  give_cap(proc_of(gpu, id, "/access"), instance_cap(gpu, id), 0444);
}

static void remove_instance_nodes(unsigned gpu, unsigned id) {
  take_cap(proc_of(gpu, id, "/access"), instance_cap(gpu, id));
  rmdir(below("/proc/driver/nvidia/capabilities/%s", proc_of(gpu, id, "")));
}

static void make_compute_nodes(unsigned gpu, unsigned id) {
  mkdir(below("/proc/driver/nvidia/capabilities/%s", proc_of(gpu, id, "/ci0")), 0555);
  give_cap(proc_of(gpu, id, "/ci0/access"), compute_cap(gpu, id, 0), 0444);
}

static void remove_compute_nodes(unsigned gpu, unsigned id) {
  take_cap(proc_of(gpu, id, "/ci0/access"), compute_cap(gpu, id, 0));
  rmdir(below("/proc/driver/nvidia/capabilities/%s", proc_of(gpu, id, "/ci0")));
}

static void list_minors(FILE *out) {
  fprintf(out, "config 1\nmonitor 2\n");
  for (unsigned gpu = 0; gpu < CAP_GPUS; gpu++)
    for (unsigned id = 0; id < INSTANCE_IDS; id++) {
      fprintf(out, "gpu%u/gi%u/access %u\n", gpu, id, instance_cap(gpu, id));
      for (unsigned compute = 0; compute < CAP_COMPUTE_IDS; compute++)
        fprintf(out, "gpu%u/gi%u/ci%u/access %u\n", gpu, id, compute, compute_cap(gpu, id, compute));
    }
}

static void make_caps(void) {
  bool can_split = false;
  for (unsigned i = 0; i < gpu_count; i++) can_split |= MODELS[gpus[i].state.model].mig;
  if (!can_split) return;
  mkdir(below("/dev/nvidia-caps"), 0755);
  mkdir(below("/proc/driver/nvidia-caps"), 0555);
  FILE *minors = fopen(below("/proc/driver/nvidia-caps/mig-minors"), "w");
  if (!minors) die("mig-minors");
  list_minors(minors);
  fclose(minors);
  mkdir(below("/proc/driver/nvidia/capabilities"), 0555);
  mkdir(below("/proc/driver/nvidia/capabilities/mig"), 0555);
  give_cap("mig/config", 1, 0400);
  give_cap("mig/monitor", 2, 0444);
  for (unsigned i = 0; i < gpu_count; i++) {
    mkdir(below("/proc/driver/nvidia/capabilities/gpu%u", i), 0555);
    mkdir(below("/proc/driver/nvidia/capabilities/gpu%u/mig", i), 0555);
  }
}

static void remove_caps(void) {
  DIR *nodes = opendir(below("/dev/nvidia-caps"));
  for (struct dirent *node; nodes && (node = readdir(nodes));) unlink(below("/dev/nvidia-caps/%s", node->d_name));
  if (nodes) closedir(nodes);
  rmdir(below("/dev/nvidia-caps"));
}

static void switch_mig(int fd, struct gpu *gpu, bool on) {
  if (!MODELS[gpu->state.model].mig) return answer(fd, "error not supported\n");
  for (int i = 0; i < MAX_INSTANCES; i++)
    if (gpu->instances[i].there) return answer(fd, "error in use\n");
  if (gpu->state.used_bytes) return answer(fd, "error in use\n");
  gpu->state.mig = on;
  answer(fd, "ok\n");
}

// The first place that is free. What is left of the GPU may then be in pieces, as on a real one.
static void partition(int fd, struct gpu *gpu, unsigned profile_id) {
  unsigned row = 0, taken = 0, alike = 0;
  int free = -1;
  if (!gpu->state.mig) return answer(fd, "error not supported\n");
  while (row < PROFILE_COUNT && PROFILES[row].id != profile_id) row++;
  if (row == PROFILE_COUNT) return answer(fd, "error no such profile\n");
  const struct profile *profile = &PROFILES[row];
  for (int i = 0; i < MAX_INSTANCES; i++) {
    const struct gpu_instance *other = &gpu->instances[i].state;
    if (!gpu->instances[i].there) free = free < 0 ? i : free;
    else taken |= ((1u << PROFILES[other->profile].size) - 1) << other->start, alike += other->profile == row;
  }
  for (unsigned start = 0; free >= 0 && alike < profile->most && start < MEMORY_SLICES; start++) {
    if (!(profile->starts >> start & 1) || taken & ((1u << profile->size) - 1) << start) continue;
    unsigned id = instance_id(start, profile->size);
    char of[16];
    gpu->instances[free].there = true;
    gpu->instances[free].engine = IDLE;
    gpu->instances[free].state = (struct gpu_instance){.id = id, .profile = row, .start = start};
    snprintf(of, sizeof of, "%u/%u/0", gpu->state.index, id);
    make_uuid(gpu->instances[free].state.uuid, sizeof gpu->instances[free].state.uuid, "MIG", of);
    make_instance_nodes(gpu->state.index, id);
    return answer(fd, "instance %u\n", id);
  }
  answer(fd, "error insufficient resources\n");
}

static void switch_compute(int fd, const struct part *part, bool on) {
  struct gpu_instance *instance = &part->gpu->instances[part->place - 1].state;
  if (instance->compute == on) return answer(fd, "error insufficient resources\n");
  if (instance->used_bytes) return answer(fd, "error in use\n");
  instance->compute = on;
  (on ? make_compute_nodes : remove_compute_nodes)(part->gpu->state.index, instance->id);
  answer(fd, "ok\n");
}

static void merge(int fd, const struct part *part) {
  struct gpu_instance *instance = &part->gpu->instances[part->place - 1].state;
  if (instance->compute) return answer(fd, "error in use\n");
  remove_instance_nodes(part->gpu->state.index, instance->id);
  part->gpu->instances[part->place - 1].there = false;
  answer(fd, "ok\n");
}

// ---- what a client may ask

static uint64_t stirred(uint64_t value) { // splitmix64
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

// `what` keeps the counters of one engine apart. One that rests reads 0, as a real one does.
static unsigned reading(long override, unsigned truth, const struct engine *engine, char what) {
  if (override >= 0) return override;
  if (!noise.points || !truth) return truth;
  uint64_t sample = now_ns() / SAMPLE_NS, place = (const char *)engine - (const char *)gpus;
  long noisy = truth + (long)(stirred(noise.seed ^ stirred(sample ^ stirred(place + what))) % (2 * noise.points + 1)) - (long)noise.points;
  return noisy < 0 ? 0 : noisy > 100 ? 100 : noisy;
}

// Of a GPU in MIG mode: what its instances do, by their share of the SMs' slices.
static unsigned truth_of(const struct gpu *gpu) {
  unsigned shares = 0;
  if (!gpu->state.mig) return utilisation(&gpu->engine, 0);
  for (int i = 0; i < MAX_INSTANCES; i++)
    if (gpu->instances[i].there) shares += utilisation(&gpu->instances[i].engine, 0) * PROFILES[gpu->instances[i].state.profile].slices;
  return shares / 7;
}

static void answer_state(int fd) {
  char text[LONGEST_ANSWER - 2];
  size_t length = snprintf(text, sizeof text, "gpus %u\n", gpu_count);
  for (unsigned i = 0; i < gpu_count; i++) {
    const struct gpu *gpu = &gpus[i];
    const struct gpu_state *s = &gpu->state;
    unsigned truth = truth_of(gpu);
    unsigned long long used_bytes = s->used_bytes;
    for (int j = 0; j < MAX_INSTANCES; j++) used_bytes += gpu->instances[j].there ? gpu->instances[j].state.used_bytes : 0;
    length += snprintf(text + length, sizeof text - length, GPU_STATE_FORMAT "\n", s->index, s->model, s->domain, s->bus, s->uuid,
                       reading(gpu->engine.override.util, truth, &gpu->engine, 'u'), reading(gpu->engine.override.prof, truth, &gpu->engine, 'p'),
                       reading(gpu->engine.override.mem, truth / 2, &gpu->engine, 'm'), used_bytes, s->xid, s->lost, s->mig);
  }
  answer(fd, "%s", text);
}

static void answer_instances(int fd, const struct gpu *gpu) {
  char text[4000];
  int count = 0;
  for (int i = 0; i < MAX_INSTANCES; i++) count += gpu->instances[i].there;
  size_t length = snprintf(text, sizeof text, "instances %d\n", count);
  for (unsigned id = 0; id < INSTANCE_IDS; id++) // in the order of their numbers
    for (int i = 0; i < MAX_INSTANCES; i++) {
      const struct gpu_instance *s = &gpu->instances[i].state;
      const struct engine *engine = &gpu->instances[i].engine;
      if (!gpu->instances[i].there || s->id != id) continue;
      unsigned truth = utilisation(engine, 0);
      length += snprintf(text + length, sizeof text - length, GPU_INSTANCE_FORMAT "\n", s->id, s->profile, s->start, s->compute, s->uuid,
                         reading(engine->override.prof, truth, engine, 'p'), reading(engine->override.mem, truth / 2, engine, 'm'), s->used_bytes);
    }
  answer(fd, "%s", text);
}

static void answer_processes(int fd, const struct part *part) {
  struct gpu_process found[MAX_PROCESSES];
  char text[4000];
  unsigned index = part->gpu->state.index;
  int count = 0;
  for (int i = 0; i < MAX_CLIENTS; i++) {
    if (polled[OWN_FDS + i].fd < 0) continue;
    int known = 0; // a process may have several connections
    while (known < count && found[known].pid != clients[i].pid) known++;
    if (known == MAX_PROCESSES) continue;
    if (known == count) {
      struct gpu_process new = {.pid = clients[i].pid, .util = utilisation(part->engine, clients[i].pid)};
      if (!new.util && !clients[i].held[index][part->place]) continue;
      found[count++] = new;
    }
    found[known].used_bytes += clients[i].held[index][part->place];
  }
  size_t length = snprintf(text, sizeof text, "processes %d\n", count);
  for (int i = 0; i < count; i++)
    length += snprintf(text + length, sizeof text - length, GPU_PROCESS_FORMAT "\n", found[i].pid, found[i].util, found[i].used_bytes);
  answer(fd, "%s", text);
}

static bool set(const struct part *part, const char *field, const char *value) {
  long percent = strcmp(value, "auto") ? strtol(value, NULL, 10) : -1;
  if (!strcmp(field, "prof")) part->engine->override.prof = percent;
  else if (!strcmp(field, "mem")) part->engine->override.mem = percent;
  else if (part->place) return false;
  else if (!strcmp(field, "util")) part->engine->override.util = percent;
  else if (!strcmp(field, "xid")) part->gpu->state.xid = strtoul(value, NULL, 10);
  else if (!strcmp(field, "lost")) part->gpu->state.lost = strtoul(value, NULL, 10);
  else return false;
  return true;
}

static bool find_part(struct gpu *gpu, long id, struct part *out) {
  *out = (struct part){gpu, &gpu->engine, &gpu->state.used_bytes, 0};
  for (int i = 0; id >= 0 && i < MAX_INSTANCES; i++)
    if (gpu->instances[i].there && gpu->instances[i].state.id == id) {
      *out = (struct part){gpu, &gpu->instances[i].engine, &gpu->instances[i].state.used_bytes, i + 1};
      return true;
    }
  return id < 0;
}

static unsigned long long room(const struct part *part) {
  const struct model *model = &MODELS[part->gpu->state.model];
  return (part->place ? PROFILES[part->gpu->instances[part->place - 1].state.profile].memory_mib : model->memory_mib - model->reserved_mib) * MIB;
}

static unsigned sysfs(const char *address, const char *attribute);

// What the fabric manager has left of it; N/A where no NVSwitch joins the GPUs.
static void answer_fabric(int fd) {
  char state[32] = "";
  bool joined = false;
  DIR *devices = opendir(below("/sys/bus/pci/devices"));
  for (struct dirent *device; devices && (device = readdir(devices));)
    joined |= sysfs(device->d_name, "vendor") == 0x10de && sysfs(device->d_name, "class") >> 8 == 0x0680;
  if (devices) closedir(devices);
  FILE *file = joined ? fopen(below("/run/nvidia-fabricmanager/state"), "r") : NULL;
  if (file && fscanf(file, "%31[^\n]", state) != 1) *state = 0;
  if (file) fclose(file);
  answer(fd, "fabric %s\n", joined ? *state ? state : "Not Started" : "N/A");
}

static void serve(int fd, struct client *client) {
  char verb[16] = "", field[16] = "", value[32] = "";
  unsigned index = 0;
  long id = -1;
  long long amount = 0;
  int at = 0;
  struct part part;
  if (!strcmp(client->line, "driver")) return answer(fd, "driver %s %d\n", release, persistence);
  if (!strcmp(client->line, "state")) return answer_state(fd);
  if (!strcmp(client->line, "fabric")) return answer_fabric(fd);
  if (sscanf(client->line, "noise %u %" SCNu64, &noise.points, &noise.seed) >= 1) return answer(fd, "ok\n");
  if (sscanf(client->line, "%15s %u%n", verb, &index, &at) != 2) return answer(fd, "error not understood\n");
  if (index >= gpu_count) return answer(fd, "error no GPU %u\n", index);
  struct gpu *gpu = &gpus[index];
  char *rest = client->line + at;
  if (*rest == '/') id = strtol(rest + 1, &rest, 10);
  if (!find_part(gpu, id, &part)) return answer(fd, "error no instance %ld on GPU %u\n", id, index);
  bool number = sscanf(rest, "%lld", &amount) == 1;
  if (!strcmp(verb, "processes")) return answer_processes(fd, &part);
  if (!strcmp(verb, "instances")) return answer_instances(fd, gpu);
  if (!strcmp(verb, "mig") && number && id < 0) return switch_mig(fd, gpu, amount);
  if (!strcmp(verb, "partition") && number && id < 0) return partition(fd, gpu, amount);
  if (!strcmp(verb, "compute") && number && id >= 0) return switch_compute(fd, &part, amount);
  if (!strcmp(verb, "merge") && id >= 0) return merge(fd, &part);
  if (!strcmp(verb, "set") && sscanf(rest, "%15s %31s", field, value) == 2 && set(&part, field, value)) return answer(fd, "ok\n");
  if (!number) return answer(fd, "error not understood\n");
  if (gpu->state.lost) return answer(fd, "error GPU %u is lost\n", index);
  if (gpu->state.mig != !!part.place) return answer(fd, "error GPU %u is %s\n", index, part.place ? "not split" : "split");
  if (!strcmp(verb, "launch") && amount >= 0) return answer(fd, "until %lld\n", (long long)launch(part.engine, client->pid, amount));
  if (strcmp(verb, "alloc")) return answer(fd, "error not understood\n");
  if ((long long)*part.used_bytes + amount > (long long)room(&part)) return answer(fd, "error out of memory\n");
  long long *held = &client->held[index][part.place];
  if (*held + amount < 0) return answer(fd, "error not yours\n");
  *held += amount;
  *part.used_bytes += amount;
  answer(fd, "ok\n");
}

// ---- the control file

static char control[256];

static void read_control(void) {
  static struct client owner;
  char answers[sizeof control + 16];
  FILE *file = fopen(control, "r");
  if (!file) return;
  snprintf(answers, sizeof answers, "%s.answers", control);
  int out = open(answers, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  while (fgets(owner.line, sizeof owner.line, file)) {
    owner.line[strcspn(owner.line, "\n")] = 0;
    if (*owner.line && *owner.line != '#') serve(out, &owner);
  }
  fclose(file);
  close(out);
}

// The folder is watched, not the file: an editor replaces it.
static int watch_control(void) {
  char folder[sizeof control];
  const char *own = getenv("LAB_GPU_CONTROL");
  snprintf(control, sizeof control, "%s", own ? own : below("/run/nvidia-persistenced/control"));
  if (*control != '/') {
    fprintf(stderr, "nvidia-persistenced: LAB_GPU_CONTROL=%s is no absolute path\n", control);
    exit(1);
  }
  strcpy(folder, control);
  int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (watch < 0 || inotify_add_watch(watch, dirname(folder), IN_CLOSE_WRITE | IN_MOVED_TO) < 0) die(control);
  return watch;
}

static void control_changed(int watch) {
  char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
  const char *name = strrchr(control, '/') + 1;
  bool changed = false;
  for (ssize_t length; (length = read(watch, events, sizeof events)) > 0;)
    for (char *at = events; at < events + length; at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len)
      changed |= ((struct inotify_event *)at)->len && !strcmp(((struct inotify_event *)at)->name, name);
  if (changed) read_control();
}

static void leave(struct pollfd *polled_client, struct client *client) {
  for (unsigned i = 0; i < gpu_count; i++) {
    gpus[i].state.used_bytes -= client->held[i][0];
    for (int j = 0; j < MAX_INSTANCES; j++) gpus[i].instances[j].state.used_bytes -= client->held[i][j + 1];
  }
  close(polled_client->fd);
  polled_client->fd = -1;
  *client = (struct client){0};
}

static void receive(struct pollfd *polled_client, struct client *client) {
  ssize_t more = recv(polled_client->fd, client->line + client->filled, sizeof client->line - 1 - client->filled, MSG_DONTWAIT);
  if (more <= 0) return leave(polled_client, client);
  client->filled += more;
  for (char *end; (end = memchr(client->line, '\n', client->filled));) {
    *end = 0;
    serve(polled_client->fd, client);
    client->filled -= end + 1 - client->line;
    memmove(client->line, end + 1, client->filled);
  }
  if (client->filled == sizeof client->line - 1) leave(polled_client, client);
}

static void welcome(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  struct ucred peer = {0};
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &(socklen_t){sizeof peer});
  for (int i = 0; i < MAX_CLIENTS; i++)
    if (polled[OWN_FDS + i].fd < 0) {
      polled[OWN_FDS + i].fd = fd;
      clients[i].pid = peer.pid;
      return;
    }
  close(fd);
}

// ---- the machine

static unsigned sysfs(const char *address, const char *attribute) {
  unsigned value = 0;
  FILE *file = fopen(below("/sys/bus/pci/devices/%s/%s", address, attribute), "r");
  if (file && fscanf(file, "%x", &value) != 1) value = 0;
  if (file) fclose(file);
  return value;
}

// A kernel driver does not get a device that another one is bound to.
static bool of_another_driver(const char *address) {
  char target[200];
  ssize_t length = readlink(below("/sys/bus/pci/devices/%s/driver", address), target, sizeof target - 1);
  if (length < 0) return false;
  target[length] = 0;
  const char *slash = strrchr(target, '/');
  return strcmp(slash ? slash + 1 : target, "nvidia") != 0;
}

static int by_address(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static void find_gpus(void) {
  struct dirent **found;
  int count = scandir(below("/sys/bus/pci/devices"), &found, NULL, by_address);
  for (int i = 0; i < count; i++) {
    unsigned domain, bus, device = sysfs(found[i]->d_name, "device");
    if (sysfs(found[i]->d_name, "vendor") != 0x10de || sscanf(found[i]->d_name, "%x:%x:", &domain, &bus) != 2) continue;
    if (of_another_driver(found[i]->d_name)) continue;
    for (unsigned m = 0; m < MODEL_COUNT && gpu_count < MAX_GPUS; m++) {
      if (MODELS[m].pci_device != device) continue;
      struct gpu *gpu = &gpus[gpu_count];
      char of[16];
      gpu->state = (struct gpu_state){.index = gpu_count, .model = m, .domain = domain, .bus = bus};
      gpu->engine = IDLE;
      snprintf(of, sizeof of, "%u", gpu_count++);
      make_uuid(gpu->state.uuid, sizeof gpu->state.uuid, "GPU", of);
    }
  }
}

static void unload(void) {
  unlink(below("/run/nvidia-persistenced/socket"));
  umount2(below("/proc/driver"), MNT_DETACH);
  for (unsigned i = 0; i < gpu_count; i++) unlink(below("/dev/nvidia%u", i));
  unlink(below("/dev/nvidiactl"));
  for (size_t i = 0; i < sizeof UVM_NODES / sizeof *UVM_NODES; i++) unlink(below("/dev/%s", UVM_NODES[i]));
  remove_caps();
}

static void load(void) {
  char name[32];
  find_gpus();
  if (!gpu_count) {
    fputs("nvidia-persistenced failed to initialize: no GPU\n", stderr);
    exit(1);
  }
  mkdir(below("/run/nvidia-persistenced"), 0755);
  unload(); // what a killed daemon left
  for (unsigned i = 0; i < gpu_count; i++) {
    snprintf(name, sizeof name, "nvidia%u", i);
    make_node(name, 195, i, 0666);
  }
  make_node("nvidiactl", 195, 255, 0666);
  if (mount("lab-gpu", below("/proc/driver"), "tmpfs", 0, "mode=555") < 0) die(below("/proc/driver"));
  mkdir(below("/proc/driver/nvidia"), 0555);
  write_file(below("/proc/driver/nvidia/version"), "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (lab)\nGCC version:\n", release);
  make_caps();
}

static int listen_on_socket(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", below("/run/nvidia-persistenced/socket"));
  unlink(address.sun_path);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 64) < 0) die(address.sun_path);
  chmod(address.sun_path, 0666);
  return listener;
}

// As upstream's: without the library it does not start, and the library's release is the driver's.
static void open_library(void) {
  void *library = dlopen("libnvidia-cfg.so.1", RTLD_NOW);
  struct link_map *map;
  if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) < 0) {
    fprintf(stderr, "nvidia-persistenced failed to initialize: %s\n", dlerror());
    exit(1);
  }
  snprintf(release, sizeof release, "%s", library_release(map->l_name));
}

static void read_options(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--persistence-mode")) persistence = true;
    else if (!strcmp(argv[i], "--no-persistence-mode")) persistence = false;
    else if (!strcmp(argv[i], "--user") && i + 1 < argc) i++; // stays root: it makes the device nodes
    else if (strcmp(argv[i], "--verbose")) {
      fprintf(stderr, "nvidia-persistenced: unrecognized option: \"%s\"\n", argv[i]);
      exit(1);
    }
  }
}

// The parent leaves when the driver is loaded, its child's number in the file that the unit names.
static void leave_the_foreground(void) {
  pid_t child = fork();
  if (child < 0) die("fork");
  if (child > 0) {
    FILE *file = fopen(below("/run/nvidia-persistenced/nvidia-persistenced.pid"), "w");
    if (file) fprintf(file, "%d\n", child);
    if (!file || fclose(file)) die("nvidia-persistenced.pid");
    _exit(0);
  }
  setsid();
  int nothing = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) dup2(nothing, fd);
}

int main(int argc, char **argv) {
  read_options(argc, argv);
  open_library();
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, NULL);
  load();
  polled[1].fd = listen_on_socket();
  polled[2].fd = watch_control();
  read_control();
  leave_the_foreground();
  polled[0].fd = signalfd(-1, &ends, SFD_CLOEXEC);
  for (;;) {
    if (poll(polled, MAX_CLIENTS + OWN_FDS, -1) < 0) continue;
    if (polled[0].revents) break;
    if (polled[1].revents) welcome(polled[1].fd);
    if (polled[2].revents) control_changed(polled[2].fd);
    for (int i = 0; i < MAX_CLIENTS; i++)
      if (polled[OWN_FDS + i].fd >= 0 && polled[OWN_FDS + i].revents) receive(&polled[OWN_FDS + i], &clients[i]);
  }
  unload();
}
