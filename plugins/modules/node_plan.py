#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# The action plugin of this name does the work, on the controller.
from __future__ import annotations

DOCUMENTATION = r"""
module: node_plan
short_description: Decide what a role does to a server
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Takes the options of a role and what its tasks have read on a server. Returns what the role does there.
  - Runs on the controller and reads nothing itself. The same options and answers always give the same plan.
  - An answer that no task has asked for yet is left out, or is the result of a skipped task.
options:
  host:
    description: The server.
    type: dict
    required: true
    suboptions:
      name:
        description: Its name in the inventory.
        type: str
        required: true
      system:
        description: Distribution and version, C(Ubuntu 24.04) or C(Debian 12).
        type: str
        required: true
      kernel:
        description: Release of the running kernel.
        type: str
        required: true
      architecture:
        description: Architecture as the kernel names it.
        type: str
        required: true
      is_local:
        description: Whether Ansible runs on it, so that no task can reboot it.
        type: bool
        default: false
      clusters:
        description: Files by which it is a node of a cluster, as M(kubegpu.autoscale.server_info) returns them.
        type: list
        elements: str
        default: []
  driver:
    description: Plan NVIDIA's driver, as the role C(nvidia_driver) installs it.
    type: dict
    suboptions:
      options:
        description: The role's options. Those that are left out have a default that depends on the server.
        type: dict
        required: true
        suboptions:
          state:
            description: C(nvidia_driver_state).
            type: str
            required: true
            choices: [present, existing, absent]
          source:
            description: C(nvidia_driver_source).
            type: str
            required: true
            choices: [cuda_repo, debian, ubuntu_prebuilt]
          version:
            description: C(nvidia_driver_version).
            type: str
            default: ""
          flavour:
            description: C(nvidia_driver_flavour).
            type: str
            default: auto
            choices: [auto, open, proprietary]
          nvlsm_version:
            description: C(nvidia_driver_nvlsm_version).
            type: str
            required: true
          versions:
            description: The rows of the version file, C(kubegpu_versions).
            type: dict
            required: true
          packages:
            description: C(nvidia_driver_packages).
            type: list
            elements: str
          fabric_packages:
            description: C(nvidia_driver_fabric_packages).
            type: list
            elements: str
          kernel_headers:
            description: C(nvidia_driver_kernel_headers).
            type: list
            elements: str
          mok_certificate:
            description: C(nvidia_driver_mok_certificate).
            type: str
          reboot_ok:
            description: C(nvidia_driver_reboot_ok).
            type: bool
          ignored_gpus:
            description: C(kubegpu_ignored_gpus).
            type: list
            elements: str
            default: []
          expected_gpus:
            description: C(nvidia_driver_expected_gpus).
            type: int
      survey:
        description: What was read on the server. Results of commands are passed as they were registered.
        type: dict
        required: true
        suboptions:
          gpu_facts:
            description: The facts of M(kubegpu.autoscale.gpu_facts).
            type: dict
            default: {}
          packages:
            description: Result of C(dpkg-query), with name, wish, state and version of each package.
            type: dict
            default: {}
          components:
            description: Results of C(apt-get indextargets), a line a component.
            type: list
            elements: dict
            default: []
          key_test:
            description: Result of C(mokutil --test-key).
            type: dict
            default: {}
          offered:
            description: Result of C(apt-cache madison).
            type: dict
            default: {}
          shown:
            description: Result of C(nvidia-smi) with PCI address, driver version and persistence mode.
            type: dict
            default: {}
          described:
            description: Result of C(nvidia-smi -q), where NVSwitches join the GPUs.
            type: dict
            default: {}
          rebooted:
            description: Whether the run has rebooted the server.
            type: bool
            default: false
          pin:
            description: C(stat) of the file with apt's pin.
            type: dict
            default: {}
          before:
            description: Result of M(ansible.builtin.slurp) for the list of packages that were installed before the pin.
            type: dict
            default: {}
          failure:
            description: Result of the task that failed to install.
            type: dict
            default: {}
          build_logs:
            description: The C(files) of M(ansible.builtin.find), logs of DKMS with errors.
            type: list
            elements: dict
            default: []
          build_log:
            description: Result of M(ansible.builtin.slurp) for the log that the plan names.
            type: dict
            default: {}
  toolkit:
    description: Plan NVIDIA's container toolkit, as the role C(nvidia_container_toolkit) installs it.
    type: dict
    suboptions:
      options:
        description: The role's options.
        type: dict
        required: true
        suboptions:
          state:
            description: C(nvidia_container_toolkit_state).
            type: str
            required: true
            choices: [present, absent]
          version:
            description: C(nvidia_container_toolkit_version).
            type: str
            default: ""
          versions:
            description: The rows of the version file, C(kubegpu_versions).
            type: dict
            required: true
          runtimes:
            description: C(nvidia_container_toolkit_runtimes).
            type: list
            elements: str
            required: true
            choices: [containerd, docker]
          verify_container:
            description: C(nvidia_container_toolkit_verify_container).
            type: bool
            required: true
      survey:
        description: What was read on the server. Results of tasks are passed as they were registered.
        type: dict
        required: true
        suboptions:
          gpu_facts:
            description: The facts of M(kubegpu.autoscale.gpu_facts).
            type: dict
            default: {}
          installed:
            description: Result of C(dpkg-query), with name, state and version of the toolkit.
            type: dict
            default: {}
          spec:
            description: Result of M(ansible.builtin.find) for a CDI specification of the driver's release.
            type: dict
            default: {}
          devices:
            description: Result of C(nvidia-ctk cdi list).
            type: dict
            default: {}
          modes:
            description: Result of C(nvidia-smi) with index and MIG mode of each GPU.
            type: dict
            default: {}
          listed:
            description: Result of C(nvidia-smi --list-gpus).
            type: dict
            default: {}
          shown:
            description: Result of M(kubegpu.autoscale.container_gpus_info).
            type: dict
            default: {}
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Plan the driver
  kubegpu.autoscale.node_plan:
    host:
      name: "{{ inventory_hostname }}"
      system: Debian 12
      kernel: "{{ ansible_facts['kernel'] }}"
      architecture: "{{ ansible_facts['architecture'] }}"
    driver:
      options:
        state: present
        source: cuda_repo
        nvlsm_version: "{{ kubegpu_versions.packages.nvlsm }}"
        versions: "{{ kubegpu_versions }}"
      survey:
        gpu_facts: "{{ ansible_facts['gpu_facts'] }}"
        packages: "{{ listed }}"
  register: plan

- name: Fail if the driver cannot work
  ansible.builtin.assert:
    that: plan.refused | length == 0
    fail_msg: "{{ plan.refused | join(' ') }}"
"""

RETURN = r"""
refused:
  description: Why nothing is to be changed, a sentence each.
  returned: always
  type: list
  elements: str
broken:
  description: What is wrong after the work, a sentence each.
  returned: always
  type: list
  elements: str
notices:
  description: What should be known after the work, a sentence each.
  returned: always
  type: list
  elements: str
packages:
  description: Repository and packages, with what is installed and what has to move.
  returned: always
  type: dict
files:
  description: Paths of files that are written on the server, by kind; C(all) has each that the role may write.
  returned: always
  type: dict
steps:
  description: The steps of the role, each with whether it is taken.
  returned: always
  type: dict
reboot:
  description: Whether the server may reboot, whether it has to, and why.
  returned: always
  type: dict
  sample: {allowed: true, required: true, reason: "driver 570.86.15 is loaded, but 580.95.05 is installed"}
"""
