#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_facts
short_description: Describe the NVIDIA GPUs and the driver of a node
extends_documentation_fragment: kubegpu.autoscale.reads
version_added: 0.1.0
description:
  - Detects NVIDIA GPUs and NVSwitches by their PCI IDs, so it works before a driver is installed.
  - Reports which kernel modules they need, which driver is installed and which one is loaded, whether a reboot is
    required, and what else prevents the driver from using the GPUs.
  - Only reads files. Runs no programs and changes nothing.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  root:
    description:
      - Folder that holds the machine's C(sys), C(proc), C(dev), C(var/lib/dpkg), C(boot), C(lib/modules) and
        C(usr/src).
      - With a folder other than V(/) the module reads a copy, for example from a support case. Files missing in the
        copy count as not existing.
    type: path
    default: /
  ignore:
    description:
      - PCI addresses of GPUs to ignore, for example V(0000:03:00.0). Use it for a small display card that needs another
        driver than the other GPUs.
    type: list
    elements: str
    default: []
notes:
  - Some files need root, for example on HGX B200 and later. The module warns about a file that it cannot read or
    interpret. The facts from it are null.
  - The module ignores C(/var/run/reboot-required), because that concerns the whole machine and not the GPUs.
  - PCI functions of a GPU other than VGA and 3D controllers (sound, USB) do not count as GPUs, nor do virtual functions
    for vGPUs. In a virtual machine a vGPU looks like the GPU that it is part of.
  - The module does not check whether the initramfs contains nouveau, because that would need programs to unpack it.
    After a reboot, RV(ansible_facts.gpu_facts.nouveau_loaded) shows it.
  - A framebuffer of the firmware (C(simpledrm), C(efifb)) does not block a GPU.
seealso:
  - name: NVIDIA Driver Installation Guide, Kernel Modules
    description: Which GPUs need which kernel modules.
    link: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
  - name: NVIDIA Multi-Instance GPU User Guide, Supported GPUs
    description: Which GPUs can be partitioned.
    link: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html
  - name: Fabric Manager for NVIDIA NVSwitch Systems
    description: The service that is required if NVSwitches connect the GPUs.
    link: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html
"""

EXAMPLES = r"""
- name: Read the facts of the GPUs
  kubegpu.autoscale.gpu_facts:

- name: Show the GPUs
  ansible.builtin.debug:
    var: ansible_facts['gpu_facts']['gpus']

- name: Install the driver on servers with a GPU
  ansible.builtin.include_role:
    name: kubegpu.autoscale.nvidia_driver
  when: ansible_facts['gpu_facts']['gpus'] | length > 0

- name: Fail if a driver was installed without a package
  ansible.builtin.assert:
    that: ansible_facts['gpu_facts']['driver_origin'] != 'other'
    fail_msg: Remove the driver that was installed without a package, for example with nvidia-uninstall.

- name: Reboot if the GPUs need it
  ansible.builtin.reboot:
    msg: "{{ ansible_facts['gpu_facts']['reboot_reason'] }}"
  when: ansible_facts['gpu_facts']['reboot_required']

- name: Read a copy of another machine's files beside the playbook
  kubegpu.autoscale.gpu_facts:
    root: "{{ playbook_dir }}/support-case"
  delegate_to: localhost
  when: (playbook_dir ~ '/support-case') is directory
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
          contains:
            pci_address:
              description: Domain, bus, device and function.
              type: str
              sample: "0000:31:00.0"
            device_id:
              description: PCI device ID, four hexadecimal digits. Null if it cannot be read.
              type: str
              sample: "2335"
            generation:
              description:
                - Architecture, V(pre-maxwell), V(maxwell), V(pascal), V(volta), V(turing), V(ampere), V(hopper),
                  V(ada), V(blackwell) or V(rubin).
                - A GPU that is newer than the module's table counts as the newest. V(unknown) if its ID cannot be read.
              type: str
              sample: hopper
            name:
              description: Product by that ID. Null if the table does not contain it, as with laptop GPUs.
              type: str
              sample: NVIDIA H200
            product:
              description:
                - Kind of product, V(datacenter), V(workstation) or V(geforce) (including TITAN). Null if the table
                  does not contain it.
                - DCGM's profiling counters are available on data center and workstation products from Volta on.
              type: str
              sample: datacenter
            memory_bar_bytes:
              description:
                - Size of the GPU's largest PCI memory window in bytes. Null if none has an address.
                - If it is much less than the GPU's memory, the firmware lacks "Above 4G decoding" or resizable BARs.
              type: int
              sample: 274877906944
            mig_capable:
              description:
                - Whether NVIDIA lists the product for MIG.
                - Null if it is unknown, because the module's table does not contain the GPU, or because its chip
                  supports MIG and NVIDIA does not list the GPU.
              type: bool
              sample: true
            bound_driver:
              description:
                - Kernel driver that is bound to the GPU, for example V(nvidia) or V(nouveau). Null if none is.
                - V(NovaCore) is part of the kernel, like nouveau.
                - V(vfio-pci) reserves a GPU for a virtual machine.
              type: str
              sample: nvidia
        nvswitches:
          description: NVSwitches by PCI address. The NVSwitches of HGX B200 and later are not PCI devices.
          type: list
          elements: dict
          sample: [{pci_address: "0000:05:00.0", device_id: 22a3, generation: hopper}]
        driver_flavour:
          description:
            - Kernel modules that support all GPUs, V(open), V(proprietary) or V(either).
            - Null without a GPU, and if no single driver supports all of them.
          type: str
          sample: either
        driver_branch_max:
          description:
            - Newest driver branch that supports the oldest GPU, 580 up to Volta, at most 470 before Maxwell.
            - Null if the newest branch supports it.
          type: int
          sample: 580
        fabric_manager_needed:
          description: Whether the fabric manager is required, because NVSwitches connect the GPUs.
          type: bool
          sample: false
        nvlsm_needed:
          description:
            - Whether the NVLink subnet manager is also required (HGX B200 and later).
            - Detected by ConnectX bridges to the switches, so it is false if a virtual machine has only the GPUs. GB200
              and GB300 have their switches, and the services for them, in separate trays.
            - Null, with a warning, if the bridges cannot be read, which requires root.
          type: bool
          sample: false
        secure_boot:
          description: Whether Secure Boot is enabled. Null on a machine without UEFI.
          type: bool
          sample: true
        nouveau_loaded:
          description: Whether the kernel driver nouveau is loaded.
          type: bool
          sample: false
        driver_version_loaded:
          description: Version of the loaded NVIDIA kernel module. Null if none is loaded.
          type: str
          sample: 580.95.05
        driver_flavour_loaded:
          description: Flavour of the loaded module, V(open) or V(proprietary). Null if none is loaded.
          type: str
          sample: open
        driver_version_installed:
          description:
            - Version of the installed driver packages. Null if none are installed.
            - This includes packages on hold, Ubuntu's server branches and its prebuilt modules.
          type: str
          sample: 580.95.05
        driver_flavour_installed:
          description: Flavour of the installed kernel modules. Null if packages of none or of both are installed.
          type: str
          sample: open
        driver_origin:
          description:
            - V(package) if the driver was installed by packages.
            - V(other) if the driver that is loaded, or built for a kernel, was not installed by a package, but for
              example by NVIDIA's C(.run) installer or a driver container.
            - Null without a driver.
          type: str
          sample: package
        uvm_available:
          description:
            - Whether the device files of nvidia-uvm exist. Null if that is unknown. CUDA programs need them,
              C(nvidia-smi) does not.
          type: bool
          sample: true
        driver_problem:
          description:
            - Why the driver does not work with the GPUs, if a reboot does not solve it, and how to fix it.
            - Possible reasons are a wrong flavour or branch for these GPUs, no module for the running kernel, and
              missing headers. Others are Secure Boot, another driver that is bound to all GPUs, and a module that is
              not loaded yet.
            - Empty otherwise, and without a GPU or a driver.
          type: str
          sample: >-
            driver 580.95.05 has no module for the running kernel 6.8.0-60-generic, whose headers are missing:
            install linux-headers-6.8.0-60-generic
        kernel:
          description: Release of the running kernel.
          type: str
          sample: 6.8.0-60-generic
        kernel_compiler:
          description:
            - Package of the compiler that Ubuntu built the running kernel with, and that DKMS needs.
            - Null if the kernel does not report it, as those of Debian, whose headers depend on their compiler.
          type: str
          sample: gcc-13
        kernel_headers_installed:
          description:
            - Whether the headers of the running kernel are installed, which DKMS needs. Null if that is unknown.
          type: bool
          sample: true
        kernel_pending:
          description:
            - Release of the newest installed kernel, which boots next, if it is newer than the running one.
            - Null otherwise.
          type: str
          sample: 6.8.0-71-generic
        next_boot_problem:
          description: Why the driver will not work after the next boot, in one sentence. Empty if no reason is known.
          type: str
          sample: kernel 6.8.0-71-generic boots next, and driver 580.95.05 has no module for it
        reboot_required:
          description: Whether a reboot is required before the GPUs can be used.
          type: bool
          sample: true
        reboot_reason:
          description:
            - Reason in one sentence. Empty if no reboot is required.
            - Possible reasons are that nouveau or its successor Nova uses the GPUs, that the loaded version or flavour
              differs from the installed one, or that the module is built only for a newer installed kernel.
          type: str
          sample: driver 570.86.15 is loaded, but 580.95.05 is installed
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.machine import read_gpu_node

ARGUMENTS: dict[str, Any] = {
    "root": {"type": "path", "default": "/"},
    "ignore": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    root = Path(module.params["root"])
    if not root.is_dir():
        module.fail_json(msg=f"node files: root {root} is no folder. Name one that holds sys, proc and var/lib/dpkg")
    node = read_gpu_node(root).without(module.params["ignore"])
    for warning in node.warnings:
        module.warn(warning)
    module.exit_json(changed=False, ansible_facts={"gpu_facts": node.facts()})


if __name__ == "__main__":
    main()
