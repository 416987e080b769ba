#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
# The action plugin of this name does the work, on the controller.
from __future__ import annotations

DOCUMENTATION = r"""
module: node_plan
short_description: Decide what a role does to a server
extends_documentation_fragment:
  - kubegpu.autoscale.private
  - kubegpu.autoscale.reads
author: kubegpu (@kubegpu)
description:
  - Computes from the options of a role, and from what its tasks read on a server, what the role does on that server.
  - Runs on the controller and reads nothing itself. The same input always gives the same plan.
  - Omit input that no task has read yet, or pass the result of a skipped task.
  - A role reads, plans, and acts. Where C(steps.ask_x) is true, it reads C(x) and plans again, because a plan with more
    input replaces the one before. C(refused) has what to fail with before changes, C(broken) what to fail with after.
  - This module is private to the collection and may change at any time. The argument specification beside each
    plan in C(plugins/module_utils/nodes) types its options.
options:
  host:
    description: The server.
    type: dict
    required: true
  server:
    description: Check whether a server can become a node.
    type: dict
  servers:
    description: Check whether the servers of a play can become one cluster.
    type: dict
  apt:
    description: Plan a set of packages from one repository.
    type: dict
  apt_offer:
    description: Check whether apt finds the packages that roles install.
    type: dict
  driver:
    description: Plan NVIDIA's driver, as the role C(nvidia_driver) installs it.
    type: dict
  containerd:
    description: Plan containerd, as the role C(containerd) installs it.
    type: dict
  drop_in:
    description: Plan one drop-in of containerd's configuration.
    type: dict
  toolkit:
    description: Plan NVIDIA's container toolkit, as the role C(nvidia_container_toolkit) installs it.
    type: dict
  unrequested:
    description: Plan whether containers get GPUs that they do not request.
    type: dict
  kubernetes:
    description: Plan Kubernetes, as the role C(kubernetes) installs it with kubeadm.
    type: dict
  reach:
    description: Plan the check that pods of all nodes reach each other.
    type: dict
  restore:
    description: Plan the restore of etcd from a backup.
    type: dict
  maintain:
    description: Plan what is due on a node, and whether it can reboot.
    type: dict
  turn:
    description: Check whether a control plane can be drained, rebooted or upgraded while each of the others works.
    type: dict
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
  description: Reasons to change nothing, one sentence each.
  returned: always
  type: list
  elements: str
broken:
  description: Problems after the changes, one sentence each.
  returned: always
  type: list
  elements: str
notices:
  description: Information after the changes, one sentence each.
  returned: always
  type: list
  elements: str
hop:
  description: Hop of the plan in the doctor's report.
  returned: for C(server), C(driver), C(containerd), C(toolkit) and C(kubernetes)
  type: str
  sample: driver
findings:
  description:
    - Findings about the server for the doctor's report, see M(kubegpu.autoscale.gpu_doctor).
    - They have failed checks of a role before an installation, and what is missing or does not work.
  returned: for C(server), C(driver), C(containerd), C(toolkit) and C(kubernetes)
  type: list
  elements: dict
  contains:
    id: {description: Name of the finding., type: str, sample: DRIVER_MISSING}
    hop: {description: Hop of the finding., type: str, sample: driver}
    server: {description: Name of the server in the inventory., type: str, sample: gpu1}
    severity: {description: V(error) or V(warning)., type: str, sample: error}
    seen: {description: The evidence., type: str, sample: has 2 GPUs (hopper) and no NVIDIA driver}
    cause: {description: The cause., type: str}
    fix: {description: The next step., type: str}
    doc: {description: Page and section in the documentation., type: str, sample: docs/doctor/driver.md#driver_missing}
    is_consequence: {description: Whether an error of the same server or node can explain it., type: bool}
    explained_by: {description: Hops whose errors can explain it. Empty means all., type: list, elements: str}
packages:
  description: Repository and packages, with what is installed and what changes.
  returned: always
  type: dict
files:
  description: Paths of the files to write on the server, by kind. C(all) has every file that the role can write.
  returned: always
  type: dict
steps:
  description: The steps of the role, each with whether it is executed.
  returned: always
  type: dict
reboot:
  description: Whether a reboot is allowed, whether it is required, and why.
  returned: always
  type: dict
  sample: {allowed: true, required: true, reason: "driver 570.86.15 is loaded, but 580.95.05 is installed"}
reached:
  description: Addresses and ports that each server has to reach on other servers, by inventory name.
  returned: for C(servers)
  type: dict
  sample: {gpu1: ["10.0.0.1:6443"], cp1: ["10.0.0.2:10250"]}
kubeadm:
  description: Documents for kubeadm (the join configuration without its token), and arguments for its command line.
  returned: for C(kubernetes)
  type: dict
gone:
  description: Lost nodes and etcd members to delete, or in C(refused) the reason why none can be deleted.
  returned: for C(kubernetes)
  type: dict
upgrade:
  description: Whether the node needs an upgrade, the command for it, or in C(refused) the reason why it cannot be
    upgraded.
  returned: for C(kubernetes)
  type: dict
peers:
  description: Pods that each node connects to, with the UID that each must return.
  returned: for C(reach)
  type: list
  elements: dict
"""
