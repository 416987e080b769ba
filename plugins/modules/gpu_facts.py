#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_facts
short_description: Describe the NVIDIA GPUs and the driver of a node
version_added: 0.1.0
description:
  - Finds NVIDIA GPUs and NVSwitches by their PCI ids, so that it works before any driver is installed.
  - Says which kernel modules they need, which driver is installed, which one is loaded, and whether a reboot is due.
  - Reads files below C(/sys), C(/proc) and C(/var/lib/dpkg) only; it runs no program and changes nothing.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  root:
    description:
      - Folder that holds the machine's V(sys), V(proc) and V(var/lib/dpkg).
      - Another folder than V(/) makes the module read a copy, from a support case for instance.
    type: path
    default: /
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Look at the GPUs
  kubegpu.autoscale.gpu_facts:

- name: Install the driver where there is a GPU
  ansible.builtin.include_role:
    name: kubegpu.autoscale.nvidia_driver
  when: ansible_facts['gpu_facts']['gpus'] | length > 0
"""

RETURN = r"""
ansible_facts:
  description: Facts that the module adds.
  returned: always
  type: dict
  contains:
    gpu_facts:
      description: The node's GPUs and driver.
      type: dict
      contains:
        gpus:
          description: NVIDIA GPUs by PCI address.
          type: list
          elements: dict
          sample: [{pci_address: "0000:31:00.0", device_id: 27b8, generation: ada}]
        nvswitches:
          description: NVSwitches by PCI address.
          type: list
          elements: dict
          sample: [{pci_address: "0000:05:00.0", device_id: 22a3, generation: hopper}]
        driver_flavour:
          description:
            - Kernel modules that serve all GPUs, V(open), V(proprietary) or V(either).
            - Null without a GPU, and where no single driver serves all of them.
          type: str
          sample: either
        fabric_manager_needed:
          description: Whether the fabric manager has to run, that is, whether NVSwitches connect the GPUs.
          type: bool
          sample: false
        nvlsm_needed:
          description: Whether the NVLink subnet manager has to run beside it (HGX B200 and later).
          type: bool
          sample: false
        secure_boot:
          description: Whether Secure Boot is on; null on a machine without UEFI.
          type: bool
          sample: true
        nouveau_loaded:
          description: Whether the kernel's own driver nouveau is loaded.
          type: bool
          sample: false
        driver_version_loaded:
          description: Version of the loaded NVIDIA kernel module, null if none is.
          type: str
          sample: 580.95.05
        driver_version_installed:
          description: Version of the installed driver packages, null if there are none.
          type: str
          sample: 580.95.05
        reboot_required:
          description: Whether the GPUs cannot be used before a reboot.
          type: bool
          sample: true
        reboot_reason:
          description: Why, in one sentence; empty if no reboot is needed.
          type: str
          sample: driver 570.86.15 is loaded, but 580.95.05 is installed
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.gpu_node import read_gpu_node


def main() -> None:
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    node = read_gpu_node(Path(module.params["root"]))
    module.exit_json(changed=False, ansible_facts={"gpu_facts": node.facts()})


if __name__ == "__main__":
    main()
