# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.docker import (
    forgetting,
    with_runtime,
    without_runtime,
)

DOCUMENTATION = r"""
name: docker_runtime
short_description: Add a runtime to Docker's daemon.json, or take it back
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Merges one runtime into the text of a C(daemon.json). What others have in it stays, in their order.
  - A runtime of that name which runs another program is somebody else's. It is neither changed nor taken.
  - Fails on text that is not JSON, and where a default runtime of somebody else would be replaced.
positional: name, path
options:
  _input:
    description: The text, empty for a file that is not there.
    type: str
    required: true
  name:
    description: The runtime's name.
    type: str
    required: true
  path:
    description: The program that it runs.
    type: str
    required: true
  default:
    description: Whether containers that name no runtime use it.
    type: bool
    default: false
  state:
    description: Whether the runtime is to be there.
    type: str
    choices: [present, absent]
    default: present
  forget:
    description:
      - Whether to spell out what the text has of runtimes and the result has not. A Docker that reloads its settings
        keeps what they do not name any more.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show Docker's settings with a runtime more
  ansible.builtin.debug:
    msg: "{{ settings | kubegpu.autoscale.docker_runtime('nvidia', '/usr/bin/nvidia-container-runtime') }}"
  vars:
    settings: '{"log-driver": "journald"}'
"""

RETURN = r"""
_value:
  description: The changed text; empty if nothing is left in it.
  type: str
"""


def _docker_runtime(
    document: str, name: str, path: str, default: bool = False, state: str = "present", forget: bool = False
) -> str:
    try:
        present = state == "present"
        wanted = with_runtime(document, name, path, default) if present else without_runtime(document, name, path)
        return forgetting(wanted, document) if forget else wanted
    except (TypeError, ValueError) as err:
        raise AnsibleFilterError(f"docker_runtime: {err}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"docker_runtime": _docker_runtime}
