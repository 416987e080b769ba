#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: chart_crds
short_description: Apply or remove the CRDs of a Helm chart
version_added: 0.1.0
description:
  - Applies every CustomResourceDefinition in the folder of an unpacked chart and its sub-charts. It uses server-side
    apply, and waits until each is served. Helm itself installs CRDs once, and never changes or removes them.
  - CRDs get the labels C(app.kubernetes.io/managed-by=kubegpu.autoscale) and C(kubegpu.autoscale/inventory). An
    existing CRD without these labels, or with other values, is not changed.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.inventory
options:
  state:
    description:
      - V(present) applies the CRDs of O(chart).
      - V(absent) removes the CRDs of O(group) that this module installed. It keeps a CRD, with a warning, while
        third-party objects of its kind exist.
    type: str
    choices: [present, absent]
    default: present
  chart:
    description: Folder of the chart, on the machine that runs the module. Required with O(state=present).
    type: path
  group:
    description: API group of the CRDs. Required with O(state=absent).
    type: str
  wait_timeout:
    description: Seconds to wait until the CRDs are served or deleted.
    type: int
    default: 60
requirements:
  - kubernetes >= 30.1 (Python)
  - PyYAML
attributes:
  check_mode:
    support: full
    description: The API server validates every change in a dry run.
  diff_mode:
    support: none
    description: A CRD can have almost a megabyte of text.
"""

EXAMPLES = r"""
- name: Download a chart
  kubernetes.core.helm_pull:
    repo_url: https://prometheus-community.github.io/helm-charts
    chart_ref: kube-prometheus-stack
    chart_version: 88.3.0
    destination: /tmp
    untar_chart: true

- name: Apply its CRDs
  kubegpu.autoscale.chart_crds:
    chart: /tmp/kube-prometheus-stack

- name: Remove its CRDs
  kubegpu.autoscale.chart_crds:
    state: absent
    group: monitoring.coreos.com
"""

RETURN = r"""
result:
  description: The CRDs after the run.
  returned: success
  type: dict
  contains:
    crds:
      description: One entry for each CRD.
      type: list
      elements: dict
      contains:
        name: {description: Name of the CRD., type: str}
        action:
          description: V(created), V(changed), V(unchanged), V(deleted), or V(kept) for a CRD that was installed
            otherwise or is in use.
          type: str
  sample:
    crds:
      - {name: prometheusrules.monitoring.coreos.com, action: created}
duration_s:
  description: Run time of the module in seconds.
  returned: always
  type: float
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.crds import apply_crds, remove_crds
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import INVENTORY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.yaml import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "chart": {"type": "path"},
    "group": {"type": "str"},
    "wait_timeout": {"type": "int", "default": 60},
    **INVENTORY,
}
NEEDED = [("state", "present", ["chart"]), ("state", "absent", ["group"])]


def read_crds(chart: Path) -> Iterator[dict[str, Any]]:
    """The CRDs in the folders `crds` of the chart and its sub-charts."""
    for text in _crd_files(chart):
        yield from (crd for crd in manifests(text) if crd.get("kind") == "CustomResourceDefinition")


def _crd_files(chart: Path) -> Iterator[str | bytes]:
    for path in sorted(chart.rglob("crds/*.y*ml")):
        yield path.read_text(encoding="utf-8")
    for path in sorted(chart.rglob("charts/*.tgz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if PurePath(member.name).match("crds/*.y*ml") and (file := archive.extractfile(member)):
                    yield file.read()


def main() -> None:
    module = GpuModule(ARGUMENTS, required_if=NEEDED)
    with module.boundary():
        inventory = module.inventory()
        kube, deadline = module.kube_client(), Deadline(module.params["wait_timeout"])
        if module.params["state"] == "present":
            module.outcome = apply_crds(kube, read_crds(Path(module.params["chart"])), inventory, deadline)
        else:
            module.outcome = remove_crds(kube, module.params["group"], inventory, deadline)


if __name__ == "__main__":
    main()
