"""Make a folder that looks like /sys/bus/pci/devices of a server with NVIDIA GPUs of one model.

The lab mounts it over the real one in its servers: the machine's own devices are none of theirs.
"""

import argparse
from pathlib import Path

FIRST_BUS = 0x10
ATTRIBUTES = {
    "vendor": "0x10de",
    "subsystem_vendor": "0x10de",
    "class": "0x030200",  # 3D controller
    "revision": "0xa1",
    "numa_node": "-1",
}
# BAR 0: 16 MiB of registers; BAR 1: 32 GiB of memory, or 128.
REGISTERS = "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n"
MODELS = {
    "L4": {
        "device": "0x27b8",
        "subsystem_device": "0x16ca",
        "resource": f"{REGISTERS}0x0000380000000000 0x00003807ffffffff 0x000000000014220c",
    },
    "H100": {  # 80GB HBM3: the one that can be split by MIG
        "device": "0x2330",
        "subsystem_device": "0x16c1",
        "resource": f"{REGISTERS}0x0000380000000000 0x0000381fffffffff 0x000000000014220c",
    },
}


def plug_in(folder: Path, gpus: int, model: str = "L4") -> None:
    """Write one device folder a GPU, 0000:10:00.0 and on."""
    folder.mkdir(parents=True, exist_ok=True)
    for bus in range(FIRST_BUS, FIRST_BUS + gpus):
        device = folder / f"0000:{bus:02x}:00.0"
        device.mkdir(exist_ok=True)
        for name, value in (ATTRIBUTES | MODELS[model]).items():
            (device / name).write_text(f"{value}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, required=True, help="how many, 0 for a server without")
    parser.add_argument("--model", choices=MODELS, default="L4")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    plug_in(arguments.folder, arguments.gpus, arguments.model)
