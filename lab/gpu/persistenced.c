// nvidia-persistenced of the lab: the daemon, and behind it the driver. Its start is what loading the kernel module is on a real
// machine: device nodes appear and /proc/driver/nvidia/version. Then it keeps the time of each GPU: kernels run one after the other,
// and utilisation is the part of the last second in which one did.
#include "driver.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
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

struct interval { int64_t begin, end; unsigned pid; };

struct gpu {
  struct gpu_state state;
  struct { long util, prof, mem; } override; // what to report instead of the truth, -1 for the truth
  struct interval busy[INTERVALS];
  unsigned long launched; // the newest interval is busy[(launched - 1) % INTERVALS]
};

struct client {
  unsigned pid; // as seen from here
  char line[128];
  size_t filled;
  long long held[MAX_GPUS]; // bytes
};

static struct gpu gpus[MAX_GPUS];
static unsigned gpu_count;
static char release[64];
static bool persistence = true; // no option means on
static struct client clients[MAX_CLIENTS];
static struct pollfd polled[MAX_CLIENTS + 2] = {[0 ... MAX_CLIENTS + 1] = {.fd = -1, .events = POLLIN}};

static const struct { const char *name; unsigned minor; } SHARED_NODES[] = {{"nvidiactl", 255}, {"nvidia-uvm", 0}, {"nvidia-uvm-tools", 1}};

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

static int64_t launch(struct gpu *gpu, unsigned pid, int64_t nanoseconds) {
  int64_t now = now_ns();
  struct interval *last = gpu->launched ? &gpu->busy[(gpu->launched - 1) % INTERVALS] : NULL;
  int64_t begin = last && last->end > now ? last->end : now;
  gpu->busy[gpu->launched++ % INTERVALS] = (struct interval){begin, begin + nanoseconds, pid};
  return begin + nanoseconds;
}

// Percent of the last second, of one process or, with 0, of all.
static unsigned utilisation(const struct gpu *gpu, unsigned pid) {
  int64_t now = now_ns(), busy = 0;
  for (unsigned long i = gpu->launched; i > 0 && gpu->launched - i < INTERVALS; i--) {
    const struct interval *run = &gpu->busy[(i - 1) % INTERVALS];
    int64_t begin = run->begin > now - WINDOW_NS ? run->begin : now - WINDOW_NS, end = run->end < now ? run->end : now;
    if (run->end < now - WINDOW_NS) break;
    if (end > begin && (!pid || run->pid == pid)) busy += end - begin;
  }
  return (busy * 100 + WINDOW_NS / 2) / WINDOW_NS;
}

// ---- requests

static __attribute__((format(printf, 2, 3))) void answer(int fd, const char *format, ...) {
  char text[LONGEST_ANSWER];
  va_list values;
  va_start(values, format);
  int length = vsnprintf(text, sizeof text - 1, format, values);
  va_end(values);
  text[length] = '\n';
  send(fd, text, length + 1, MSG_NOSIGNAL | MSG_DONTWAIT); // who does not read its answer gets none
}

static void answer_state(int fd) {
  char text[LONGEST_ANSWER - 2];
  size_t length = snprintf(text, sizeof text, "gpus %u\n", gpu_count);
  for (unsigned i = 0; i < gpu_count; i++) {
    const struct gpu *gpu = &gpus[i];
    const struct gpu_state *s = &gpu->state;
    unsigned truth = utilisation(gpu, 0), util = gpu->override.util >= 0 ? gpu->override.util : truth;
    unsigned prof = gpu->override.prof >= 0 ? gpu->override.prof : truth, mem = gpu->override.mem >= 0 ? gpu->override.mem : truth / 2;
    length += snprintf(text + length, sizeof text - length, GPU_STATE_FORMAT "\n", s->index, s->model, s->domain, s->bus, s->uuid, util, prof,
                       mem, s->used_bytes, s->xid, s->lost);
  }
  answer(fd, "%s", text);
}

static void answer_processes(int fd, unsigned index) {
  struct gpu_process found[MAX_PROCESSES];
  char text[4000];
  int count = 0;
  for (int i = 0; i < MAX_CLIENTS; i++) {
    if (polled[2 + i].fd < 0) continue;
    int known = 0; // a process may have several connections
    while (known < count && found[known].pid != clients[i].pid) known++;
    if (known == MAX_PROCESSES) continue;
    if (known == count) {
      struct gpu_process new = {.pid = clients[i].pid, .util = utilisation(&gpus[index], clients[i].pid)};
      if (!new.util && !clients[i].held[index]) continue;
      found[count++] = new;
    }
    found[known].used_bytes += clients[i].held[index];
  }
  size_t length = snprintf(text, sizeof text, "processes %d\n", count);
  for (int i = 0; i < count; i++)
    length += snprintf(text + length, sizeof text - length, GPU_PROCESS_FORMAT "\n", found[i].pid, found[i].util, found[i].used_bytes);
  answer(fd, "%s", text);
}

static bool set(struct gpu *gpu, const char *field, const char *value) {
  long percent = strcmp(value, "auto") ? strtol(value, NULL, 10) : -1;
  if (!strcmp(field, "util")) gpu->override.util = percent;
  else if (!strcmp(field, "prof")) gpu->override.prof = percent;
  else if (!strcmp(field, "mem")) gpu->override.mem = percent;
  else if (!strcmp(field, "xid")) gpu->state.xid = strtoul(value, NULL, 10);
  else if (!strcmp(field, "lost")) gpu->state.lost = strtoul(value, NULL, 10);
  else return false;
  return true;
}

static void serve(int fd, struct client *client) {
  char verb[16] = "", field[16] = "", value[32] = "";
  unsigned index = 0;
  long long amount = 0;
  if (!strcmp(client->line, "driver")) return answer(fd, "driver %s %d\n", release, persistence);
  if (!strcmp(client->line, "state")) return answer_state(fd);
  if (sscanf(client->line, "%15s %u", verb, &index) != 2) return answer(fd, "error not understood\n");
  if (index >= gpu_count) return answer(fd, "error no GPU %u\n", index);
  struct gpu *gpu = &gpus[index];
  if (!strcmp(verb, "processes")) return answer_processes(fd, index);
  if (!strcmp(verb, "set") && sscanf(client->line, "%*s %*u %15s %31s", field, value) == 2 && set(gpu, field, value)) return answer(fd, "ok\n");
  if (sscanf(client->line, "%*s %*u %lld", &amount) != 1) return answer(fd, "error not understood\n");
  if (gpu->state.lost) return answer(fd, "error GPU %u is lost\n", index);
  if (!strcmp(verb, "launch") && amount >= 0) return answer(fd, "until %lld\n", (long long)launch(gpu, client->pid, amount));
  if (strcmp(verb, "alloc")) return answer(fd, "error not understood\n");
  const struct model *model = &MODELS[gpu->state.model];
  if ((long long)gpu->state.used_bytes + amount > (long long)((model->memory_mib - model->reserved_mib) * MIB)) return answer(fd, "error out of memory\n");
  if (client->held[index] + amount < 0) return answer(fd, "error not yours\n");
  client->held[index] += amount;
  gpu->state.used_bytes += amount;
  answer(fd, "ok\n");
}

static void leave(struct pollfd *polled_client, struct client *client) {
  for (unsigned i = 0; i < gpu_count; i++) gpus[i].state.used_bytes -= client->held[i];
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
    if (polled[2 + i].fd < 0) {
      polled[2 + i].fd = fd;
      clients[i].pid = peer.pid;
      return;
    }
  close(fd);
}

// ---- the machine

static const char *below(const char *format, ...) {
  static char full[256];
  char path[200];
  va_list values;
  va_start(values, format);
  vsnprintf(path, sizeof path, format, values);
  va_end(values);
  return machine_path(full, sizeof full, path);
}

static unsigned sysfs(const char *address, const char *attribute) {
  unsigned value = 0;
  FILE *file = fopen(below("/sys/bus/pci/devices/%s/%s", address, attribute), "r");
  if (file && fscanf(file, "%x", &value) != 1) value = 0;
  if (file) fclose(file);
  return value;
}

// The same at each start, different on each server: two FNV-1a hashes of host name and index, stirred by murmur's last step.
static void make_uuid(char *out, size_t size, unsigned index) {
  char seed[128] = "";
  uint64_t half[2] = {14695981039346656037u, 1099511628211u};
  gethostname(seed, sizeof seed - 16);
  snprintf(seed + strlen(seed), 16, "/%u", index);
  for (int i = 0; i < 2; i++) {
    for (const char *c = seed; *c; c++) half[i] = (half[i] ^ (unsigned char)*c) * 1099511628211u;
    half[i] = (half[i] ^ half[i] >> 33) * 0xff51afd7ed558ccdu;
    half[i] ^= half[i] >> 33;
  }
  snprintf(out, size, "GPU-%08lx-%04lx-%04lx-%04lx-%012lx", half[0] >> 32, half[0] >> 16 & 0xffff, half[0] & 0xffff, half[1] >> 48, half[1] & 0xffffffffffff);
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
      *gpu = (struct gpu){.state = {.index = gpu_count, .model = m, .domain = domain, .bus = bus}, .override = {-1, -1, -1}};
      make_uuid(gpu->state.uuid, sizeof gpu->state.uuid, gpu_count++);
    }
  }
}

static void make_node(const char *name, unsigned major, unsigned minor) {
  const char *path = below("/dev/%s", name);
  if (mknod(path, S_IFCHR | 0666, makedev(major, minor)) < 0 && errno != EEXIST) die(path);
  chmod(path, 0666); // whatever the umask
}

static void unload(void) {
  unlink(below("/run/nvidia-persistenced/socket"));
  umount2(below("/proc/driver"), MNT_DETACH);
  for (unsigned i = 0; i < gpu_count; i++) unlink(below("/dev/nvidia%u", i));
  for (size_t i = 0; i < sizeof SHARED_NODES / sizeof *SHARED_NODES; i++) unlink(below("/dev/%s", SHARED_NODES[i].name));
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
    make_node(name, 195, i);
  }
  for (size_t i = 0; i < sizeof SHARED_NODES / sizeof *SHARED_NODES; i++) make_node(SHARED_NODES[i].name, i ? 511 : 195, SHARED_NODES[i].minor);
  if (mount("lab-gpu", below("/proc/driver"), "tmpfs", 0, "mode=555") < 0) die(below("/proc/driver"));
  mkdir(below("/proc/driver/nvidia"), 0555);
  FILE *version = fopen(below("/proc/driver/nvidia/version"), "w");
  if (!version) die(below("/proc/driver/nvidia/version"));
  fprintf(version, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (lab)\nGCC version:\n", release);
  fclose(version);
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
  leave_the_foreground();
  polled[0].fd = signalfd(-1, &ends, SFD_CLOEXEC);
  for (;;) {
    if (poll(polled, MAX_CLIENTS + 2, -1) < 0) continue;
    if (polled[0].revents) break;
    if (polled[1].revents) welcome(polled[1].fd);
    for (int i = 0; i < MAX_CLIENTS; i++)
      if (polled[2 + i].fd >= 0 && polled[2 + i].revents) receive(&polled[2 + i], &clients[i]);
  }
  unload();
}
