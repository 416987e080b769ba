# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.waiting_pods import Awaited, report

DOCUMENTATION = r"""
name: pods_not_ready
short_description: Explain why pods are not ready
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns one error text for pods that did not become ready. It quotes containers, the scheduler and events of
    rejected pods, and lists taints that the pods do not tolerate.
positional: _input, pods, events
options:
  _input:
    description:
      - The C(namespace) and label C(selector) of the pods, and the C(hop), C(seen) and C(fix) of the error. For one pod
        per node also the C(nodes), the C(tolerations) of the pods, and the C(option) that adds a toleration.
    type: dict
    required: true
  pods:
    description: Pods that the selector matches.
    type: list
    elements: dict
    required: true
  events:
    description: Events of the namespace with reason C(FailedCreate).
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Fail with the reason
  ansible.builtin.fail:
    msg: "{{ awaited | kubegpu.autoscale.pods_not_ready(pods.resources) }}"
  vars:
    awaited:
      namespace: monitoring
      selector: app=exporter
      hop: DCGM
      seen: 0 of 2 exporters are ready
      fix: "`kubectl -n monitoring get pods`"
"""

RETURN = r"""
_value:
  description: The error text.
  type: str
"""


def pods_not_ready(
    awaited: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]] = ()
) -> str:
    given = {key: value for key, value in awaited.items() if value is not None}
    words = {key: " ".join(str(given[key]).split()) for key in ("hop", "seen", "fix")}
    return report(Awaited(**{**given, **words}), pods, events)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"pods_not_ready": pods_not_ready}
