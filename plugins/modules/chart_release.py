#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: chart_release
short_description: Compare a Helm release with what it should be, and put back what was deleted or edited
version_added: 0.1.0
description:
  - Compares chart, version, values and served kinds of a release with what is wanted. Nothing is changed where they
    differ, since that is an upgrade; RV(result.differs) says so.
  - Helm compares charts and values, never objects. Where a release is as wanted, each object of it that somebody has
    deleted or edited is put back. What others added to an object stays.
  - Secrets are left alone, since their difference would be shown.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
options:
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
    description: Name of the chart that the release should have.
    type: str
    required: true
  chart_version:
    description: Version of the chart that the release should have.
    type: str
    required: true
  release_values:
    description: Values that the release should have, beside the chart's own.
    type: dict
    default: {}
  kinds:
    description: Kinds that the chart's CRDs serve, each as C(group/version/Kind). One that is missing is a difference.
    type: list
    elements: str
    default: []
requirements:
  - helm >= 3.0.0
  - kubernetes >= 24.2.0 (Python)
  - PyYAML
attributes:
  check_mode:
    support: full
    description: The API server judges every change in a dry run.
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Compare a release, and put back what was deleted or edited
  kubegpu.autoscale.chart_release:
    binary_path: /usr/local/bin/helm
    release_name: dcgm-exporter
    release_namespace: monitoring
    chart_name: dcgm-exporter
    chart_version: 4.8.2
    release_values: {serviceMonitor: {interval: 2s}}
  register: release

- name: Upgrade it
  kubernetes.core.helm:
    binary_path: /usr/local/bin/helm
    name: dcgm-exporter
    release_namespace: monitoring
    chart_repo_url: https://nvidia.github.io/dcgm-exporter/helm-charts
    chart_ref: dcgm-exporter
    chart_version: 4.8.2
    values: {serviceMonitor: {interval: 2s}}
  when: release.result.differs
"""

RETURN = r"""
result:
  description: What there is.
  returned: always
  type: dict
  contains:
    differs: {description: "Whether chart, version, values, state or kinds are not as wanted.", type: bool}
    status: {description: "State of the release, V(deployed) for instance; empty if there is none.", type: str}
    chart: {description: "Chart and version, V(dcgm-exporter-4.8.2); empty if there is no release.", type: str}
    values: {description: Values of the release beside the chart's own., type: dict}
    missing_kinds: {description: Those of O(kinds) that the API server does not serve., type: list, elements: str}
    objects:
      description: The objects that were put back.
      type: list
      elements: str
  sample:
    differs: false
    status: deployed
    chart: dcgm-exporter-4.8.2
    values: {serviceMonitor: {interval: 2s}}
    missing_kinds: []
    objects: [Service monitoring/dcgm-exporter]
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
from ansible_collections.kubernetes.core.plugins.module_utils.helm import AnsibleHelmModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import AnsibleK8SModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.resource import create_definitions
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.runner import perform_action
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.service import K8sService

with suppress(ImportError):  # AnsibleK8SModule insists on both
    import yaml
    from kubernetes.dynamic.exceptions import NotFoundError

ARGUMENTS: dict[str, Any] = {
    "binary_path": {"type": "path", "required": True},
    "release_name": {"type": "str", "required": True},
    "release_namespace": {"type": "str", "required": True},
    "chart_name": {"type": "str", "required": True},
    "chart_version": {"type": "str", "required": True},
    "release_values": {"type": "dict", "default": {}},
    "kinds": {"type": "list", "elements": "str", "default": []},
}


class Release:
    """A release as helm knows it: `status` and `chart` are empty if there is none."""

    def __init__(self, helm: AnsibleHelmModule) -> None:
        self._helm = helm
        self._name = helm.params["release_name"]
        found = [row for row in self._ask("list", "--all", "--filter", f"^{self._name}$") if row["name"] == self._name]
        self.status = found[0]["status"] if found else ""
        self.chart = found[0]["chart"] if found else ""
        self._told = self._ask("status", self._name) if found else {}

    def _ask(self, *words: str) -> Any:
        return json.loads(self._helm.run_helm_command([self._helm.get_helm_binary(), *words, "--output=json"])[1])

    @property
    def values(self) -> dict[str, Any]:
        return self._told.get("config") or {}

    def is_as_wanted(self) -> bool:
        wanted = self._helm.params
        return (
            self.status == "deployed"
            and self.chart == f"{wanted['chart_name']}-{wanted['chart_version']}"
            and self.values == wanted["release_values"]
        )

    def objects(self) -> list[dict[str, Any]]:
        """What helm has put into the cluster, Secrets left out."""
        return [each for each in read_manifest(self._told["manifest"]) if each["kind"] != "Secret"]


def read_manifest(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a manifest, without documents that a condition left empty and without fields that have no value.

    Helm leaves those out, too. A chart writes `annotations:` with nothing below it, and a patch with that would take
    away all annotations, those of Helm and of others too.
    """

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Reads a bare `=`, to which YAML 1.1 gives a meaning of its own, as text."""

    Loader.add_constructor("tag:yaml.org,2002:value", Loader.construct_yaml_str)
    for document in yaml.load_all(text, Loader=Loader):
        if document:
            yield _without_nulls(document)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def missing_kinds(service: K8sService, kinds: list[str]) -> list[str]:
    """Those of `kinds` that are not served. Asked anew: the library's own answer comes from a file."""
    versions = sorted({kind.rpartition("/")[0] for kind in kinds})
    served = {f"{version}/{kind}" for version in versions for kind in _served(service, version)}
    return [kind for kind in kinds if kind not in served]


def _served(service: K8sService, version: str) -> list[str]:
    try:
        answer = service.client.client.request("GET", f"/apis/{version}", serialize=False)
    except NotFoundError:
        return []
    return [each["kind"] for each in json.loads(answer.data)["resources"]]


def put_back(service: K8sService, release: Release, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects that were not as the release has them, by title, with their difference."""
    for wanted in create_definitions({"resource_definition": release.objects(), "namespace": namespace}):
        done = perform_action(service, wanted, {})
        if done["changed"]:
            title = _title(done["result"])
            yield title, {"before_header": title, "after_header": title, **_difference(done)}


def _title(seen: dict[str, Any]) -> str:
    metadata = seen["metadata"]
    return f"{seen['kind']} {'/'.join(filter(None, (metadata.get('namespace'), metadata['name'])))}"


def _difference(done: dict[str, Any]) -> dict[str, Any]:
    if done["method"] == "create":
        return {"before": "", "after": done["result"]}
    return done.get("diff") or {"before": "", "after": ""}


def main() -> None:
    module = AnsibleK8SModule(argument_spec={**AUTH_ARG_SPEC, **ARGUMENTS}, supports_check_mode=True)
    helm = AnsibleHelmModule(module=module._module)
    release = Release(helm)
    result = {"status": release.status, "chart": release.chart, "values": release.values, "objects": []}
    diff: list[dict[str, Any]] = []
    try:
        service = K8sService(get_api_client(module), module)
        result["missing_kinds"] = missing_kinds(service, module.params["kinds"])
        result["differs"] = not release.is_as_wanted() or bool(result["missing_kinds"])
        if not result["differs"]:
            for title, difference in put_back(service, release, module.params["release_namespace"]):
                result["objects"].append(title)
                diff.append(difference)
    except CoreException as error:
        module.fail_json(msg=str(error), changed=bool(diff), result=result)
    module.exit_json(changed=bool(diff), result=result, diff=diff)


if __name__ == "__main__":
    main()
