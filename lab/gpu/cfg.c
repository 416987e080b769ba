// libnvidia-cfg of the lab: what nvidia-persistenced opens and does not start without. Its file name says of which release the driver is.
int nvCfgGetPciDevices(int *count, void **devices) {
  *count = 0;
  *devices = 0;
  return 1;
}
