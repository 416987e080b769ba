"""A virtual machine with Debian's kernel, systemd as process 1 and active swap, which containers lack."""
