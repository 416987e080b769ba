// nvidia-modprobe of the lab: `-u` is what loading nvidia-uvm is on a real machine, its device nodes appear. Without a driver it fails, and
// says nothing, as upstream's.
#include "driver.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int make_node(const char *name, unsigned minor) {
  char path[256];
  machine_path(path, sizeof path, name);
  if (mknod(path, S_IFCHR | 0666, makedev(511, minor)) < 0 && errno != EEXIST) return 1;
  return chmod(path, 0666) != 0; // whatever the umask
}

int main(int argc, char **argv) {
  char path[256];
  int unified = 0;
  for (int i = 1; i < argc; i++) unified |= !strcmp(argv[i], "-u") || !strcmp(argv[i], "--unified-memory");
  if (access(machine_path(path, sizeof path, "/proc/driver/nvidia/version"), R_OK)) return 1;
  return unified ? make_node("/dev/nvidia-uvm", 0) || make_node("/dev/nvidia-uvm-tools", 1) : 0;
}
