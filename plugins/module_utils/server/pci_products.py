# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""NVIDIA's boards by PCI device id: name, kind of product, and whether MIG can split them.

Sources:
  names: NVIDIA/open-gpu-kernel-modules 595.45.04, README, "Compatible GPUs", without laptop and embedded parts; up to
  Volta `supported-gpus.json` of the driver; where both are silent, the PCI ID database, version 2026.08.22;
  MIG: NVIDIA's Multi-Instance GPU User Guide, chapter "Supported GPUs" (releases 590 and 610), and the device filters
  in NVIDIA/mig-parted, `deployments/systemd/config-default.yaml` (2026-08-21);
  kind: NVIDIA's brand in the name, as the GPU Operator's "Platform Support" sorts its data center and RTX boards.
A device id can stand for several boards, which only the subsystem id tells apart: then the name has a slash.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Product:
    """kind: `datacenter`, `workstation`, `geforce`; None for mining boards and small computers. mig: None if unsaid."""

    name: str
    kind: str | None
    mig: bool | None


_MIG = {"mig": True, "-": False, "?": None}

# Device id, kind, MIG (mig: yes, -: no, ?: its chip can and NVIDIA's lists leave the board out), name.
_TABLE = """
1001 geforce     -   GeForce GTX TITAN Z
1005 geforce     -   GeForce GTX TITAN
100c geforce     -   GeForce GTX TITAN Black
1021 datacenter  -   Tesla K20Xm
1022 datacenter  -   Tesla K20c
1023 datacenter  -   Tesla K40m
1024 datacenter  -   Tesla K40c
1026 datacenter  -   Tesla K20s
1027 datacenter  -   Tesla K40st
1028 datacenter  -   Tesla K20m
1029 datacenter  -   Tesla K40s
102a datacenter  -   Tesla K40t
102d datacenter  -   Tesla K80
118f datacenter  -   Tesla K10
1194 datacenter  -   Tesla K8
13f2 datacenter  -   Tesla M60
13f3 datacenter  -   Tesla M6
1431 datacenter  -   Tesla M4
15f0 workstation -   Quadro GP100
15f7 datacenter  -   Tesla P100-PCIE-12GB
15f8 datacenter  -   Tesla P100-PCIE-16GB
15f9 datacenter  -   Tesla P100-SXM2-16GB
17c2 geforce     -   NVIDIA GeForce GTX TITAN X
17fd datacenter  -   Tesla M40
1b00 geforce     -   NVIDIA TITAN X (Pascal)
1b02 geforce     -   NVIDIA TITAN Xp
1b38 datacenter  -   Tesla P40
1bb3 datacenter  -   Tesla P4
1bb4 datacenter  -   Tesla P6
1d81 geforce     -   NVIDIA TITAN V
1db1 datacenter  -   Tesla V100-SXM2-16GB
1db3 datacenter  -   Tesla V100-FHHL-16GB
1db4 datacenter  -   Tesla V100-PCIE-16GB
1db5 datacenter  -   Tesla V100-SXM2-32GB
1db6 datacenter  -   Tesla V100-PCIE-32GB
1db7 datacenter  -   Tesla V100-DGXS-32GB
1db8 datacenter  -   Tesla V100-SXM3-32GB
1dba workstation -   Quadro GV100
1df0 datacenter  -   Tesla PG500-216
1df2 datacenter  -   Tesla PG503-216
1df6 datacenter  -   Tesla V100S-PCIE-32GB
1e02 geforce     -   NVIDIA TITAN RTX
1e04 geforce     -   NVIDIA GeForce RTX 2080 Ti
1e07 geforce     -   NVIDIA GeForce RTX 2080 Ti
1e09 -           -   NVIDIA CMP 50HX
1e30 workstation -   Quadro RTX 6000 / Quadro RTX 8000
1e36 workstation -   Quadro RTX 6000
1e78 workstation -   Quadro RTX 8000 / Quadro RTX 6000
1e81 geforce     -   NVIDIA GeForce RTX 2080 SUPER
1e82 geforce     -   NVIDIA GeForce RTX 2080
1e84 geforce     -   NVIDIA GeForce RTX 2070 SUPER
1e87 geforce     -   NVIDIA GeForce RTX 2080
1e89 geforce     -   NVIDIA GeForce RTX 2060
1eb0 workstation -   Quadro RTX 5000
1eb1 workstation -   Quadro RTX 4000
1eb8 datacenter  -   Tesla T4
1ec2 geforce     -   NVIDIA GeForce RTX 2070 SUPER
1ec7 geforce     -   NVIDIA GeForce RTX 2070 SUPER
1f02 geforce     -   NVIDIA GeForce RTX 2070
1f03 geforce     -   NVIDIA GeForce RTX 2060
1f06 geforce     -   NVIDIA GeForce RTX 2060 SUPER
1f07 geforce     -   NVIDIA GeForce RTX 2070
1f08 geforce     -   NVIDIA GeForce RTX 2060
1f0a geforce     -   NVIDIA GeForce GTX 1650
1f0b -           -   NVIDIA CMP 40HX
1f42 geforce     -   NVIDIA GeForce RTX 2060 SUPER
1f47 geforce     -   NVIDIA GeForce RTX 2060 SUPER
1f82 geforce     -   NVIDIA GeForce GTX 1650
1f83 geforce     -   NVIDIA GeForce GTX 1630
1fb1 workstation -   NVIDIA T600
1ff0 workstation -   NVIDIA T1000 8GB
1ff2 workstation -   NVIDIA T400 4GB / NVIDIA T400E
20b0 datacenter  mig NVIDIA A100-SXM4-40GB
20b1 datacenter  mig NVIDIA A100-PCIE-40GB
20b2 datacenter  mig NVIDIA A100-SXM4-80GB
20b3 datacenter  ?   NVIDIA A100-SXM-64GB
20b5 datacenter  mig NVIDIA A100 80GB PCIe
20b6 datacenter  mig NVIDIA PG506-232
20b7 datacenter  mig NVIDIA A30
20b8 datacenter  ?   NVIDIA A100X
20b9 datacenter  ?   NVIDIA A30X
20bd datacenter  ?   NVIDIA A800-SXM4-40GB
20f1 datacenter  mig NVIDIA A100-PCIE-40GB
20f3 datacenter  mig NVIDIA A800-SXM4-80GB
20f5 datacenter  mig NVIDIA A800 80GB PCIe / NVIDIA A800 80GB PCIe LC
20f6 workstation mig NVIDIA A800 40GB Active
20fd datacenter  ?   NVIDIA AX800
2182 geforce     -   NVIDIA GeForce GTX 1660 Ti
2184 geforce     -   NVIDIA GeForce GTX 1660
2187 geforce     -   NVIDIA GeForce GTX 1650 SUPER
2188 geforce     -   NVIDIA GeForce GTX 1650
2189 -           -   NVIDIA CMP 30HX
21c4 geforce     -   NVIDIA GeForce GTX 1660 SUPER
2203 geforce     -   NVIDIA GeForce RTX 3090 Ti
2204 geforce     -   NVIDIA GeForce RTX 3090
2206 geforce     -   NVIDIA GeForce RTX 3080
2207 geforce     -   NVIDIA GeForce RTX 3070 Ti
2208 geforce     -   NVIDIA GeForce RTX 3080 Ti
220a geforce     -   NVIDIA GeForce RTX 3080
220d -           -   NVIDIA CMP 90HX
2216 geforce     -   NVIDIA GeForce RTX 3080
2230 workstation -   NVIDIA RTX A6000
2231 workstation -   NVIDIA RTX A5000
2232 workstation -   NVIDIA RTX A4500
2233 workstation -   NVIDIA RTX A5500
2235 datacenter  -   NVIDIA A40
2236 datacenter  -   NVIDIA A10
2237 datacenter  -   NVIDIA A10G
2238 datacenter  -   NVIDIA A10M
230e datacenter  ?   NVIDIA H20 NVL16
2321 datacenter  mig NVIDIA H100 NVL
2322 datacenter  mig NVIDIA H800 PCIe
2324 datacenter  mig NVIDIA H800
2329 datacenter  mig NVIDIA H20
232c datacenter  ?   NVIDIA H20-3e
2330 datacenter  mig NVIDIA H100 80GB HBM3
2331 datacenter  mig NVIDIA H100 PCIe
2335 datacenter  mig NVIDIA H200
2339 datacenter  mig NVIDIA H100
233a datacenter  mig NVIDIA H800 NVL
233b datacenter  mig NVIDIA H200 NVL
233d datacenter  mig NVIDIA H100 96GB
2342 datacenter  mig NVIDIA GH200 120GB / NVIDIA GH200 480GB
2348 datacenter  mig NVIDIA GH200 144G HBM3e
2414 geforce     -   NVIDIA GeForce RTX 3060 Ti
2482 geforce     -   NVIDIA GeForce RTX 3070 Ti
2484 geforce     -   NVIDIA GeForce RTX 3070
2486 geforce     -   NVIDIA GeForce RTX 3060 Ti
2487 geforce     -   NVIDIA GeForce RTX 3060
2488 geforce     -   NVIDIA GeForce RTX 3070
2489 geforce     -   NVIDIA GeForce RTX 3060 Ti
248a -           -   NVIDIA CMP 70HX
24b0 workstation -   NVIDIA RTX A4000
24b1 workstation -   NVIDIA RTX A4000H
24c7 geforce     -   NVIDIA GeForce RTX 3060
24c9 geforce     -   NVIDIA GeForce RTX 3060 Ti
2503 geforce     -   NVIDIA GeForce RTX 3060
2504 geforce     -   NVIDIA GeForce RTX 3060
2507 geforce     -   NVIDIA GeForce RTX 3050
2508 geforce     -   NVIDIA GeForce RTX 3050 OEM
2531 workstation -   NVIDIA RTX A2000
2544 geforce     -   NVIDIA GeForce RTX 3060
2571 workstation -   NVIDIA RTX A2000 12GB
2582 geforce     -   NVIDIA GeForce RTX 3050
2584 geforce     -   NVIDIA GeForce RTX 3050
25ad geforce     -   NVIDIA GeForce RTX 2050
25b0 workstation -   NVIDIA RTX A1000
25b2 workstation -   NVIDIA RTX A400
25b6 datacenter  -   NVIDIA A16 / NVIDIA A2
25ed geforce     -   NVIDIA GeForce RTX 2050
2684 geforce     -   NVIDIA GeForce RTX 4090
2685 geforce     -   NVIDIA GeForce RTX 4090 D
2689 geforce     -   NVIDIA GeForce RTX 4070 Ti SUPER
26b1 workstation -   NVIDIA RTX 6000 Ada Generation
26b2 workstation -   NVIDIA RTX 5000 Ada Generation
26b3 workstation -   NVIDIA RTX 5880 Ada Generation
26b5 datacenter  -   NVIDIA L40
26b9 datacenter  -   NVIDIA L40S
26ba datacenter  -   NVIDIA L20
2702 geforce     -   NVIDIA GeForce RTX 4080 SUPER
2704 geforce     -   NVIDIA GeForce RTX 4080
2705 geforce     -   NVIDIA GeForce RTX 4070 Ti SUPER
2709 geforce     -   NVIDIA GeForce RTX 4070
2782 geforce     -   NVIDIA GeForce RTX 4070 Ti
2783 geforce     -   NVIDIA GeForce RTX 4070 SUPER
2786 geforce     -   NVIDIA GeForce RTX 4070
2788 geforce     -   NVIDIA GeForce RTX 4060 Ti
27b0 workstation -   NVIDIA RTX 4000 SFF Ada Generation
27b1 workstation -   NVIDIA RTX 4500 Ada Generation
27b2 workstation -   NVIDIA RTX 4000 Ada Generation
27b6 datacenter  -   NVIDIA L2
27b8 datacenter  -   NVIDIA L4
2803 geforce     -   NVIDIA GeForce RTX 4060 Ti
2805 geforce     -   NVIDIA GeForce RTX 4060 Ti
2808 geforce     -   NVIDIA GeForce RTX 4060
2882 geforce     -   NVIDIA GeForce RTX 4060
28b0 workstation -   NVIDIA RTX 2000 Ada Generation / NVIDIA RTX 2000E Ada Generation
2901 datacenter  mig NVIDIA B200
2941 datacenter  mig NVIDIA GB200
2b85 geforce     -   NVIDIA GeForce RTX 5090
2b87 geforce     -   NVIDIA GeForce RTX 5090 D
2b8c geforce     -   NVIDIA GeForce RTX 5090 D v2
2bb1 workstation mig NVIDIA RTX PRO 6000 Blackwell Workstation Edition
2bb3 workstation mig NVIDIA RTX PRO 5000 Blackwell / NVIDIA RTX PRO 5000 72GB Blackwell
2bb4 workstation mig NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition
2bb5 datacenter  mig NVIDIA RTX PRO 6000 Blackwell Server Edition
2bb9 datacenter  ?   NVIDIA RTX 6000D
2c02 geforce     -   NVIDIA GeForce RTX 5080
2c05 geforce     -   NVIDIA GeForce RTX 5070 Ti
2c31 workstation mig NVIDIA RTX PRO 4500 Blackwell
2c33 workstation -   NVIDIA RTX PRO 4000 Blackwell SFF Edition
2c34 workstation -   NVIDIA RTX PRO 4000 Blackwell
2c3a datacenter  mig NVIDIA RTX PRO 4500 Blackwell Server Edition
2d04 geforce     -   NVIDIA GeForce RTX 5060 Ti
2d05 geforce     -   NVIDIA GeForce RTX 5060
2d30 workstation -   NVIDIA RTX PRO 2000 Blackwell
2d83 geforce     -   NVIDIA GeForce RTX 5050
2e12 -           -   NVIDIA GB10
2f04 geforce     -   NVIDIA GeForce RTX 5070
3182 datacenter  mig NVIDIA B300 SXM6 AC
31c2 datacenter  mig NVIDIA GB300
"""


def _parse(line: str) -> tuple[int, Product]:
    device, kind, mig, name = line.split(maxsplit=3)
    return int(device, 16), Product(name, None if kind == "-" else kind, _MIG[mig])


PRODUCTS: dict[int, Product] = dict(_parse(line) for line in _TABLE.strip().splitlines())
