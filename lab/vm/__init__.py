"""A virtual machine with Debian's kernel, systemd as process 1 and swap that is on: what no container shows."""
