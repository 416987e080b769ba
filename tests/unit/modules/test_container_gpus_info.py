"""What a container that runs nvidia-smi is given of the node."""

from __future__ import annotations

from ansible_collections.kubegpu.autoscale.plugins.modules.container_gpus_info import libraries

LINKED = """
\tlinux-vdso.so.1 (0x00007ffd0b5f2000)
\tlibnvidia-ml.so.1 => /lib/x86_64-linux-gnu/libnvidia-ml.so.1 (0x00007f1b2c000000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1b2be00000)
\tlibcuda.so.1 => not found
\t/lib64/ld-linux-x86-64.so.2 (0x00007f1b2c2d5000)
"""


def test_it_gets_the_c_library_and_nothing_of_nvidia() -> None:
    assert libraries(LINKED) == ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
