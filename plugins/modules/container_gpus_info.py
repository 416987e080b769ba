#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
module: container_gpus_info
short_description: List the GPUs that a container sees
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Runs the node's C(nvidia-smi) in a containerd container without an image, so nothing is pulled. Its root
    is an empty folder with the C library that nvidia-smi is linked with. CDI adds everything else.
  - The container is always removed.
author: kubegpu (@kubegpu)
options:
  device:
    description: CDI name of the device for the container.
    type: str
    default: nvidia.com/gpu=all
  runtime:
    description: OCI runtime for the container instead of runc.
    type: path
    default: /usr/bin/nvidia-container-runtime
requirements:
  - containerd
  - nvidia-container-toolkit
attributes:
  check_mode:
    support: partial
    description: Runs in check mode, and returns the same as otherwise.
    details: It is skipped in check mode, because it has to run a container.
  diff_mode:
    support: none
    description: The module changes nothing, so it returns no diff.
"""

EXAMPLES = r"""
- name: List the GPUs that a container sees
  kubegpu.autoscale.container_gpus_info:
  register: container
  failed_when: container.result.gpus | length == 0
"""

RETURN = r"""
result:
  description: Result of the container.
  returned: success
  type: dict
  contains:
    gpus: {description: "One line for each GPU, as printed by nvidia-smi.", type: list, elements: str}
    rc: {description: "Exit status. 0 if nvidia-smi succeeded.", type: int}
    output: {description: All other output., type: str}
  sample:
    gpus: ["GPU 0: NVIDIA L4 (UUID: GPU-ca3bdeb7-7cc1-3b05-1f4c-4f0d4e1d2c3a)"]
    rc: 0
    output: ""
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.masked_module import MaskedModule

SMI = "/usr/bin/nvidia-smi"
# A separate namespace: neither the kubelet nor `docker ps` takes notice.
CTR = ["ctr", "--namespace", "kubegpu"]
# On a busy server ctr may end before it has copied what the container wrote, and nvidia-smi always writes something.
ATTEMPTS = 3

ARGUMENTS: dict[str, Any] = {
    "device": {"type": "str", "default": "nvidia.com/gpu=all"},
    "runtime": {"type": "path", "default": "/usr/bin/nvidia-container-runtime"},
}


def libraries(linked: str) -> list[str]:
    """Paths in the output of ldd, but for NVIDIA's own: those have to come by CDI."""
    paths = re.findall(r"(/\S+) \(0x", linked)
    return [path for path in paths if not re.search("nvidia|cuda", path)]


@contextmanager
def empty_container(module: AnsibleModule) -> Iterator[Path]:
    """The root of a container to be, whose name is that of the folder. Both are gone afterwards."""
    # mkdtemp's names may have an underscore where containerd allows none.
    root = Path("/run", f"kubegpu-gpu-check-{uuid4().hex}")
    root.mkdir()
    try:
        root.chmod(0o755)
        (root / "etc").mkdir()
        yield root
    finally:
        module.run_command([*CTR, "containers", "delete", root.name])  # it is one only if it did not end
        shutil.rmtree(root, ignore_errors=True)
        module.run_command(["ctr", "namespaces", "remove", "kubegpu"])


def run_nvidia_smi(module: AnsibleModule, paths: list[str]) -> tuple[int, str, str]:
    """Exit status, output and errors of nvidia-smi. paths: what it is linked with."""
    mounts = [f"--mount=type=bind,src={path},dst={path},options=rbind:ro" for path in paths]
    runtime = ["--runc-binary", module.params["runtime"], "--device", module.params["device"]]
    for _attempt in range(ATTEMPTS):
        with empty_container(module) as root:
            command = [*CTR, "run", "--rm", "--rootfs", *runtime, *mounts, str(root), root.name, SMI, "-L"]
            status, out, err = module.run_command(command)
        if status != 0 or out.strip():
            break
    return status, out, err


def main() -> None:
    module = MaskedModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(skipped=True, msg="no container is run in check mode")
    _status, linked, _errors = module.run_command(["ldd", SMI], check_rc=True)
    rc, out, err = run_nvidia_smi(module, libraries(linked))
    lines = out.splitlines()
    gpus = [line for line in lines if re.match("GPU [0-9]", line)]
    rest = "\n".join([err.strip(), *(line for line in lines if line not in gpus)]).strip()
    module.exit_json(changed=False, result={"gpus": gpus, "rc": rc, "output": rest})


if __name__ == "__main__":
    main()
