// runc of the lab: the real one, and what a kernel does by itself. What a driver puts into /proc/driver is in each /proc of a machine; the
// stand-in's is a mount of the server's, so it is mounted in a new container as well, before its program starts.
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REAL "/usr/libexec/kubegpu-lab/runc"
#define DRIVER "/proc/driver"

// Best effort: a container of a server without a driver, or one whose /proc is not a mount, is as it was.
static void bring_driver(const char *pid_file) {
  char path[64];
  int pid = 0;
  FILE *file = fopen(pid_file, "r");
  if (!file || fscanf(file, "%d", &pid) != 1) return;
  fclose(file);
  if (access(DRIVER "/nvidia/version", F_OK) < 0) return;
  snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
  int namespace = open(path, O_RDONLY | O_CLOEXEC);
  int driver = syscall(SYS_open_tree, AT_FDCWD, DRIVER, 1 /* OPEN_TREE_CLONE */ | O_CLOEXEC);
  if (namespace < 0 || driver < 0 || setns(namespace, CLONE_NEWNS) < 0) return;
  syscall(SYS_move_mount, driver, "", AT_FDCWD, DRIVER, 4 /* MOVE_MOUNT_F_EMPTY_PATH */);
}

int main(int argc, char **argv) {
  const char *pid_file = NULL;
  bool creates = false;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "create")) creates = true;
    if (!strcmp(argv[i], "--pid-file") && i + 1 < argc) pid_file = argv[i + 1];
  }
  pid_t child = creates && pid_file ? fork() : 0;
  if (child == 0) {
    execv(REAL, argv);
    perror(REAL);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return 1;
  if (status == 0) bring_driver(pid_file);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
