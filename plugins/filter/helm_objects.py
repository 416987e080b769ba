# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

DOCUMENTATION = r"""
name: helm_objects
short_description: What a release of Helm put into the cluster, to be compared with what is there
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Turns the manifest of a release into objects that M(kubernetes.core.k8s) can put back.
  - Leaves out Secrets, since a difference of theirs would be shown, and documents that a condition left empty.
  - Leaves out fields without a value, as Helm does. A chart writes C(annotations:) with nothing below it, and a patch
    with that would take away all annotations, those of Helm and of others too.
options:
  _input:
    description: The documents of the manifest, as M(kubernetes.core.helm_info) returns them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Ask helm for the release
  kubernetes.core.helm_info:
    release_name: dcgm-exporter
    release_namespace: monitoring
  register: release

- name: Put back what somebody has deleted or edited
  kubernetes.core.k8s:
    namespace: monitoring
    resource_definition: "{{ release.status.manifest | kubegpu.autoscale.helm_objects }}"
"""

RETURN = r"""
_value:
  description: The objects.
  type: list
  elements: dict
"""


def _helm_objects(manifest: Iterable[dict[str, Any] | None]) -> list[dict[str, Any]]:
    return [_without_nulls(each) for each in manifest if each and each["kind"] != "Secret"]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"helm_objects": _helm_objects}
