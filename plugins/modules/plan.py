#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
# The action plugin of this name does the work, on the controller.
from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Decide what a role does
extends_documentation_fragment:
  - kubegpu.autoscale.private
  - kubegpu.autoscale.reads
author: kubegpu (@kubegpu)
description:
  - Computes what a role does from its options and from what its tasks read. Runs on the controller and reads nothing
    itself. The same options and the same survey always give the same plan.
  - The options are the variables of the role, converted to the types in its argument specification.
  - A role reads, plans and acts. If C(steps.ask_x) is true, it reads C(x) and plans again. A plan with more input
    replaces the one before.
options:
  role:
    description: Name of the role, without the name of the collection.
    type: str
    required: true
  subject:
    description: Part of the role that is planned. Empty means the role as a whole.
    type: str
    default: ""
  survey:
    description:
      - Results of the tasks that have run. Omit what no task has read yet, or pass the result of a skipped task.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Plan the driver
  kubegpu.autoscale.plan:
    role: nvidia_driver
    survey:
      host: "{{ _common_host }}"
      gpu_facts: "{{ ansible_facts['gpu_facts'] }}"
      packages: "{{ __nvidia_driver_listed }}"
  register: __nvidia_driver_plan

- name: Fail if the driver cannot work
  ansible.builtin.assert:
    that: __nvidia_driver_plan.refused | length == 0
    fail_msg: "{{ __nvidia_driver_plan.refused | join('\n') }}"
"""

RETURN = r"""
refused:
  description:
    - Reasons to change nothing, one sentence each. C(broken) are problems after the changes, and C(notices) warnings.
  returned: always
  type: list
  elements: str
steps:
  description: The steps of the role, each with whether it is executed. C(ask_x) is true if C(x) has to be read.
  returned: if the role has optional steps
  type: dict
commands:
  description: Arguments of C(kubegpu_upkeep.py) for each step of a restore, on all control plane servers.
  returned: for the subject C(restore)
  type: list
  elements: list
findings:
  description:
    - Findings about the server for the doctor's report, in the format of M(kubegpu.autoscale.gpu_doctor). C(hop) is
      their hop.
  returned: for server roles
  type: list
  elements: dict
packages:
  description: Repository and packages, with what is installed and what changes. C(files) are paths on the server.
  returned: for server roles
  type: dict
"""
