#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
module: chart_release
short_description: Compare, install, upgrade or remove a Helm release that this module manages
description:
  - Compares chart, version, values and served kinds of a release with the wanted state. RV(result.differs) shows
    whether an upgrade is needed. With O(chart_folder) the module performs it.
  - A release of this module has the labels C(kubegpu.autoscale/release) and C(kubegpu.autoscale/inventory), in Helm's
    record and in each of its objects. A release without them, or with those of another inventory, is not managed by
    this module. It is neither changed nor removed, unless O(adopt) is set.
  - While it changes a release, it holds a Lease of C(coordination.k8s.io) in the namespace of the release. A second run
    fails before making changes, and names the first one. It also fails while a helm operation is pending that is not
    older than O(timeout).
  - An interrupted upgrade is repeated. The revision before it then decides who manages the release, so an interrupted
    adoption has not adopted it. A managed release that was never deployed is removed first.
  - Helm compares charts and values, but not objects. If a managed release does not differ, the module restores its
    objects that were deleted or edited. Fields that others added to an object are kept.
  - Secrets are not restored, because their diff would be shown.
author: kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.inventory
  - kubegpu.autoscale.private
options:
  state:
    description:
      - V(present) compares, and with O(chart_folder) installs or upgrades.
      - V(absent) removes a managed release, and leftover objects of a deleted namespace or a failed installation. It
        deletes the objects that helm cannot remove, except PersistentVolumeClaims and objects that the chart keeps.
    type: str
    choices: [present, absent]
    default: present
  binary_path:
    description: Path of helm, on the machine that runs the module.
    type: path
    required: true
  release_name:
    description: Name of the release.
    type: str
    required: true
  release_namespace:
    description: Namespace of the release.
    type: str
    required: true
  chart_name:
    description: Chart of the release. Required with O(state=present).
    type: str
  chart_version:
    description: Version of the chart. Required with O(state=present).
    type: str
  chart_folder:
    description: Folder of the unpacked chart, on the machine that runs the module. Without it nothing is installed.
    type: path
  release_values:
    description: Values of the release, which override the chart's defaults.
    type: dict
    default: {}
  kinds:
    description: Kinds that the chart's CRDs serve, each as C(group/version/Kind). A missing kind is a difference.
    type: list
    elements: str
    default: []
  adopt:
    description: Whether to upgrade an existing release that this module does not manage, and to manage it from then on.
      Needs O(chart_folder).
    type: bool
    default: false
  hooks:
    description: Whether O(state=absent) runs the hooks of the chart.
    type: bool
    default: true
  timeout:
    description:
      - Seconds that helm waits for a single operation, for example a hook.
      - A pending helm operation counts as running until it is older than that.
    type: int
    default: 300
requirements:
  - helm >= 3.14.0
  - kubernetes >= 30.1 (Python)
  - PyYAML
attributes:
  check_mode:
    support: full
    description: The API server validates every change in a dry run. The module does not run helm for it.
  diff_mode:
    support: full
    description: Shows each object before and after.
"""

EXAMPLES = r"""
- name: Compare a release, and restore objects that were deleted or edited
  kubegpu.autoscale.chart_release:
    binary_path: /usr/local/bin/helm
    release_name: dcgm-exporter
    release_namespace: monitoring
    chart_name: dcgm-exporter
    chart_version: 4.8.2
    release_values: {serviceMonitor: {interval: 2s}}
  register: release

- name: Upgrade the release
  kubegpu.autoscale.chart_release:
    binary_path: /usr/local/bin/helm
    release_name: dcgm-exporter
    release_namespace: monitoring
    chart_name: dcgm-exporter
    chart_version: 4.8.2
    chart_folder: /tmp/dcgm-exporter
    release_values: {serviceMonitor: {interval: 2s}}
  when: release.result.differs

- name: Remove the release
  kubegpu.autoscale.chart_release:
    state: absent
    binary_path: /usr/local/bin/helm
    release_name: dcgm-exporter
    release_namespace: monitoring
"""

RETURN = r"""
result:
  description: The release before the run.
  returned: always
  type: dict
  contains:
    owned: {description: "Whether this module manages the release. V(false) if it does not exist.", type: bool}
    made_by: {description: "What manages it, as text. Empty if this module does, or if the release does not exist.",
      type: str}
    begun: {description: "Whether this module made the last revision, even if it was interrupted.", type: bool}
    differs: {description: "Whether manager, chart, version, values, state or kinds differ from the options.", type:
      bool}
    status: {description: "State of the release, for example V(deployed). Empty if it does not exist.", type: str}
    chart: {description: "Chart and version, V(dcgm-exporter-4.8.2). Empty if the release does not exist.", type: str}
    changes:
      description: Differences of chart and values, one line each, without secrets.
      type: list
      elements: str
    missing_kinds: {description: Entries of O(kinds) that the API server does not serve., type: list, elements: str}
    objects:
      description: The objects that were restored or deleted by the module itself.
      type: list
      elements: str
  sample:
    owned: true
    made_by: ""
    begun: true
    differs: false
    status: deployed
    chart: dcgm-exporter-4.8.2
    changes: []
    missing_kinds: []
    objects: [Service monitoring/dcgm-exporter]
"""

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.chart_release import (
    ensure_release,
    remove_release,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import INVENTORY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.helm import Helm, WantedRelease
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "binary_path": {"type": "path", "required": True},
    "release_name": {"type": "str", "required": True},
    "release_namespace": {"type": "str", "required": True},
    "chart_name": {"type": "str"},
    "chart_version": {"type": "str"},
    "chart_folder": {"type": "path"},
    "release_values": {"type": "dict", "default": {}},
    "kinds": {"type": "list", "elements": "str", "default": []},
    "adopt": {"type": "bool", "default": False},
    "hooks": {"type": "bool", "default": True},
    "timeout": {"type": "int", "default": 300},
    **INVENTORY,
}
NEEDED = [("state", "present", ["chart_name", "chart_version"])]


def main() -> None:
    module = GpuModule(ARGUMENTS, required_if=NEEDED)
    params = module.params
    with module.boundary():
        wanted = WantedRelease(
            name=params["release_name"],
            namespace=params["release_namespace"],
            inventory=module.inventory(),
            chart=params["chart_name"] or "",
            version=params["chart_version"] or "",
            folder=params["chart_folder"] or "",
            values=params["release_values"],
            kinds=params["kinds"],
            adopt=params["adopt"],
            hooks=params["hooks"],
            timeout_s=params["timeout"],
        )
        kube, helm = module.kube_client(), Helm(module.ansible_module)
        act = ensure_release if params["state"] == "present" else remove_release
        act(helm, kube, wanted, module.outcome)


if __name__ == "__main__":
    main()
