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
  - Says which kernel modules they need, which driver is installed and which one is loaded. Also says whether a reboot
    is due, and what else keeps the driver from its GPUs.
  - Reads files only; it runs no program and changes nothing.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  root:
    description:
      - Folder that holds the machine's C(sys), C(proc), C(dev), C(var/lib/dpkg), C(boot), C(lib/modules) and
        C(usr/src).
      - Another folder than V(/) makes the module read a copy, from a support case for instance. A file that the copy
        lacks counts as not there.
    type: path
    default: /
  ignore:
    description:
      - PCI addresses of GPUs that count as not there, V(0000:03:00.0) for instance. A small card for a screen, which
        wants another driver than the others, is one.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
notes:
  - Needs root where the kernel keeps files from others, on HGX B200 and later for instance. A file that cannot be
    read, or that makes no sense, gives a warning with its name. The facts from it are null.
  - The file C(/var/run/reboot-required) is not looked at. It speaks for the whole machine, not for its GPUs.
  - Functions of a GPU other than VGA and 3D controllers (sound, USB) are no GPUs here. Nor are virtual functions, a
    vGPU's share of a GPU. In a virtual machine a vGPU looks like the GPU that it is part of.
  - Whether the initramfs holds nouveau is not looked at, since that takes programs to unpack it. After a reboot,
    RV(ansible_facts.gpu_facts.nouveau_loaded) tells.
  - A framebuffer of the firmware (C(simpledrm), C(efifb)) holds no GPU and is no reason for anything.
seealso:
  - name: NVIDIA Driver Installation Guide, Kernel Modules
    description: Which GPUs need which kernel modules.
    link: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
  - name: NVIDIA Multi-Instance GPU User Guide, Supported GPUs
    description: Which GPUs can be split.
    link: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html
  - name: Fabric Manager for NVIDIA NVSwitch Systems
    description: The service that has to run beside the driver where NVSwitches connect the GPUs.
    link: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html
"""

EXAMPLES = r"""
- name: Look at the GPUs
  kubegpu.autoscale.gpu_facts:

- name: Show them
  ansible.builtin.debug:
    var: ansible_facts['gpu_facts']['gpus']

- name: Install the driver where there is a GPU
  ansible.builtin.include_role:
    name: kubegpu.autoscale.nvidia_driver
  when: ansible_facts['gpu_facts']['gpus'] | length > 0

- name: Stop if a driver is there that no package brought
  ansible.builtin.assert:
    that: ansible_facts['gpu_facts']['driver_origin'] != 'other'
    fail_msg: Remove the driver that was installed without a package, with nvidia-uninstall for instance.

- name: Reboot if the GPUs need it
  ansible.builtin.reboot:
    msg: "{{ ansible_facts['gpu_facts']['reboot_reason'] }}"
  when: ansible_facts['gpu_facts']['reboot_required']

- name: Look into the files of another machine, if there is a copy of them beside the playbook
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
              description: PCI device id, four hexadecimal digits; null if it cannot be read.
              type: str
              sample: "2335"
            generation:
              description:
                - Architecture, V(pre-maxwell), V(maxwell), V(pascal), V(volta), V(turing), V(ampere), V(hopper),
                  V(ada), V(blackwell) or V(rubin).
                - A GPU that is newer than the module's table counts as the newest; V(unknown) if its id cannot be read.
              type: str
              sample: hopper
            name:
              description: Product by that id; null if the table does not have it, as with laptop GPUs.
              type: str
              sample: NVIDIA H200
            product:
              description:
                - Kind of product, V(datacenter), V(workstation) or V(geforce) (TITAN included); null if the table does
                  not say.
                - DCGM's profiling counters come with data center and workstation products from Volta on.
              type: str
              sample: datacenter
            memory_bar_bytes:
              description:
                - Bytes of the GPU's largest PCI memory window; null if none has an address.
                - Far less than the GPU's memory means that the firmware lacks "Above 4G decoding" or resizable BARs.
              type: int
              sample: 274877906944
            mig_capable:
              description:
                - Whether NVIDIA lists the product for MIG.
                - Null if the module's table does not know the GPU and it may be able to. Null also if its chip is able
                  to and NVIDIA's lists leave the GPU out.
              type: bool
              sample: true
            bound_driver:
              description:
                - Kernel driver that holds the GPU, V(nvidia) or V(nouveau) for instance; null if none does.
                - V(NovaCore) is the kernel's own, as nouveau is.
                - V(vfio-pci) holds a GPU that is kept for a virtual machine.
              type: str
              sample: nvidia
        nvswitches:
          description: NVSwitches by PCI address. Those of HGX B200 and later have none.
          type: list
          elements: dict
          sample: [{pci_address: "0000:05:00.0", device_id: 22a3, generation: hopper}]
        driver_flavour:
          description:
            - Kernel modules that serve all GPUs, V(open), V(proprietary) or V(either).
            - Null without a GPU, and where no single driver serves all of them.
          type: str
          sample: either
        driver_branch_max:
          description:
            - Newest driver branch that still serves the oldest GPU, 580 up to Volta, 470 at most before Maxwell.
            - Null if the newest branch there is does.
          type: int
          sample: 580
        fabric_manager_needed:
          description: Whether the fabric manager has to run, that is, whether NVSwitches connect the GPUs.
          type: bool
          sample: false
        nvlsm_needed:
          description:
            - Whether the NVLink subnet manager has to run beside it (HGX B200 and later).
            - Seen by ConnectX bridges to the switches, so it is false where a virtual machine has the GPUs alone. GB200
              and GB300 have their switches, and what runs for them, in trays of their own.
            - Null, with a warning, if the bridges cannot be asked; that takes root.
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
        driver_flavour_loaded:
          description: Its flavour, V(open) or V(proprietary); null if none is loaded.
          type: str
          sample: open
        driver_version_installed:
          description:
            - Version of the installed driver packages, null if there are none.
            - Packages on hold count. Ubuntu's branches for servers and its prebuilt modules do too.
          type: str
          sample: 580.95.05
        driver_flavour_installed:
          description: Flavour of the installed kernel modules; null if there are packages of none, or of both.
          type: str
          sample: open
        driver_origin:
          description:
            - V(package) if packages brought the driver.
            - V(other) if no package brought the driver that is loaded or built for a kernel. NVIDIA's C(.run) installer
              or a driver container brought it then.
            - Null without a driver.
          type: str
          sample: package
        uvm_available:
          description:
            - Whether the device files of nvidia-uvm exist; null if that cannot be told. CUDA programs need them, and
              C(nvidia-smi) does not.
          type: bool
          sample: true
        driver_problem:
          description:
            - Why the driver does not drive its GPUs, where no reboot cures that, and how to mend it.
            - Reasons are a wrong flavour or branch for these GPUs, no module for the running kernel, or missing
              headers. Others are Secure Boot, another driver that holds all GPUs, and a module that is not loaded yet.
            - Empty otherwise, and without a GPU or a driver.
          type: str
          sample: >-
            driver 580.95.05 has no module for the running kernel 6.8.0-60-generic, whose headers are missing:
            install linux-headers-6.8.0-60-generic
        kernel:
          description: Release of the running kernel.
          type: str
          sample: 6.8.0-60-generic
        kernel_headers_installed:
          description:
            - Whether headers for the running kernel are there, so that DKMS can build; null if that cannot be told.
          type: bool
          sample: true
        reboot_required:
          description: Whether the GPUs cannot be used before a reboot.
          type: bool
          sample: true
        reboot_reason:
          description:
            - Why, in one sentence; empty if no reboot is needed.
            - Nouveau or its successor Nova holds the GPUs, or another version or flavour is loaded than is installed.
              Or the module is built for a newer installed kernel only.
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
