#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
# The action plugin of this name does the work, on the controller.
from __future__ import annotations

DOCUMENTATION = r"""
module: server_reboot
short_description: Reboot many servers at the same time
extends_documentation_fragment: kubegpu.autoscale.private
author: kubegpu (@kubegpu)
description:
  - Without O(boot_id), starts a reboot and returns immediately. With O(boot_id), waits until the server has booted.
  - M(ansible.builtin.reboot) does both in one task, so at most as many servers reboot at a time as Ansible has forks.
    With two tasks all servers of a play reboot at the same time.
  - Supports Linux with systemd. Fails with the connection C(local), because it would reboot the controller.
options:
  boot_id:
    description: Boot ID before the reboot, as the task that started it returned it. Empty to start a reboot.
    type: str
    default: ""
  msg:
    description: Message to users who are logged in.
    type: str
    default: Reboot initiated by Ansible
  reboot_timeout:
    description: Seconds to wait until the server answers with a new boot ID.
    type: int
    default: 600
attributes:
  check_mode:
    description: Reports a change, and reboots nothing.
    support: full
  diff_mode:
    description: A reboot has no difference to return.
    support: none
"""

EXAMPLES = r"""
- name: Start the reboot
  kubegpu.autoscale.server_reboot:
  register: reboot

- name: Wait until the server has booted
  kubegpu.autoscale.server_reboot:
    boot_id: "{{ reboot.boot_id }}"
"""

RETURN = r"""
boot_id:
  description: Boot ID before the reboot.
  returned: success
  type: str
  sample: 5bd7b8a1-5a3e-4c1e-9b54-1f0b2f0c7f4d
"""
