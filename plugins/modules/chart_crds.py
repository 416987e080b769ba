#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: chart_crds
short_description: Apply the CRDs of a Helm chart
version_added: 0.1.0
description:
  - Applies every CustomResourceDefinition in the folder of an unpacked chart, sub-charts included, by server-side
    apply, and waits until each is served. Helm itself applies them once and never again.
  - CRDs are marked with the label C(app.kubernetes.io/managed-by=kubegpu.autoscale). One that is there without it was
    brought by somebody else and stays as it is.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
options:
  chart:
    description: Folder of the chart, on the machine that runs the module.
    type: path
    required: true
  wait_timeout:
    description: Seconds to wait until the CRDs are served.
    type: int
    default: 60
requirements:
  - kubernetes >= 24.2.0 (Python)
  - PyYAML
attributes:
  check_mode:
    support: full
    description: The API server judges every change in a dry run.
  diff_mode:
    support: none
    description: A CRD is close to a megabyte of text.
"""

EXAMPLES = r"""
- name: Fetch a chart
  kubernetes.core.helm_pull:
    repo_url: https://prometheus-community.github.io/helm-charts
    chart_ref: kube-prometheus-stack
    chart_version: 88.3.0
    destination: /tmp
    untar_chart: true

- name: Bring its CRDs to that version
  kubegpu.autoscale.chart_crds:
    chart: /tmp/kube-prometheus-stack
"""

RETURN = r"""
result:
  description: What there is now.
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
          description: V(created), V(changed), V(unchanged), or V(kept) for one that somebody else brought.
          type: str
  sample:
    crds:
      - {name: prometheusrules.monitoring.coreos.com, action: created}
duration_s:
  description: Seconds the module took.
  returned: always
  type: float
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.flows import Deadline, apply_crds
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

with suppress(ImportError):  # kubernetes, which GpuModule insists on, cannot be there without it
    import yaml


def read_crds(chart: Path) -> Iterator[dict[str, Any]]:
    """The CRDs in the chart's folders `crds`."""

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Reads a bare `=`, to which YAML 1.1 gives a meaning of its own, as text: AlertmanagerConfig has one."""

    Loader.add_constructor("tag:yaml.org,2002:value", Loader.construct_yaml_str)
    for path in sorted(chart.rglob("crds/*.y*ml")):
        for document in yaml.load_all(path.read_text(), Loader=Loader):
            if document and document.get("kind") == "CustomResourceDefinition":
                yield document


def main() -> None:
    module = GpuModule(
        {"chart": {"type": "path", "required": True}, "wait_timeout": {"type": "int", "default": 60}},
    )
    with module.boundary():
        crds = read_crds(Path(module.params["chart"]))
        module.outcome = apply_crds(module.kube_client(), crds, Deadline(module.params["wait_timeout"]))


if __name__ == "__main__":
    main()
