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

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from socket import gethostname
from typing import Any
from uuid import uuid4

from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import INVENTORY as INVENTORY_ARGUMENT
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kubeconfig import check_kubeconfig
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.lease import Lease
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.transport import connect
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.marks import INVENTORY, RELEASE, labels
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import checked_inventory
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import HIDDEN, masked_texts, redacted
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
from ansible_collections.kubernetes.core.plugins.module_utils.helm import AnsibleHelmModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import AnsibleK8SModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.resource import create_definitions
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.runner import perform_action
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.service import K8sService

FAILURES: tuple[type[Exception], ...] = (CoreException, HopError, ApiError)
with suppress(ImportError):  # AnsibleK8SModule insists on both
    import yaml
    from kubernetes.client.exceptions import ApiException
    from kubernetes.dynamic.exceptions import DynamicApiError, NotFoundError
    from urllib3.exceptions import HTTPError

    FAILURES += (ApiException, DynamicApiError, HTTPError)

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
    **INVENTORY_ARGUMENT,
}
NEEDED = [("state", "present", ["chart_name", "chart_version"])]

# Releases are asked for in each state by name: Helm 4 has no `--all`.
STATES = ("--deployed", "--failed", "--pending", "--superseded", "--uninstalled", "--uninstalling")
HELM_NAME = "meta.helm.sh/release-name"
HELM_NAMESPACE = "meta.helm.sh/release-namespace"
HELM_POLICY = "helm.sh/resource-policy"
# A value, and how it may be shown.
Shown = tuple[Any, Any]
# Where objects of a release are that do not go with its namespace.
ELSEWHERE = (
    ("apiregistration.k8s.io/v1", "APIService"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("v1", "Service"),
)


class Release:
    """A release as helm knows it: `status` and `chart` are empty if it does not exist.

    begun: this module made its last revision. owned: so it did with the one that was deployed last, if that is another.
    must_go: nothing of it is in use, and helm may not upgrade it.
    """

    def __init__(self, helm: AnsibleHelmModule, wanted: dict[str, Any], service: K8sService) -> None:
        self._helm, self._wanted = helm, wanted
        self._name, self._inventory = helm.params["release_name"], helm.params["inventory_id"]
        found = self._find("--selector", f"{RELEASE}={self._name},{INVENTORY}={self._inventory}")
        self.begun = bool(found)
        found = found or self._find()
        self.status = found[0]["status"] if found else ""
        self.chart = found[0]["chart"] if found else ""
        self._told = self._ask("status", self._name) if found else {}
        broke_off = self.status not in ("", "deployed")
        records = _records(service, helm.params) if broke_off or (found and not self.begun) else []
        self._last = records[-1] if records else None
        self._records = _since_deployed(records) if broke_off else []
        was_deployed = bool(self._records) and _was_deployed(self._records[0])
        self.owned = _is_marked(self._records[0], self._inventory) if was_deployed else self.begun
        self.must_go = self.status.startswith("uninstall") or (bool(self._records) and not was_deployed)

    @property
    def made_by(self) -> str:
        """Its manager, for an error; empty if this inventory manages it, or if it does not exist."""
        if self.owned or not self.status:
            return ""
        marks = self._last["metadata"]["labels"] if self._last else {}
        if RELEASE in marks and marks.get(INVENTORY) not in (None, self._inventory):
            return f"belongs to inventory {marks[INVENTORY]}, and kubegpu_inventory_id of this one is {self._inventory}"
        return "was not created by this collection"

    def refuse_if_helm_works(self, now: datetime) -> None:
        """Raises: HopError while an operation of helm may still run."""
        if self._last is None or not self.status.startswith(("pending", "uninstalling")):
            return
        began, timeout = _written(self._last), timedelta(seconds=self._helm.params["timeout"])
        if now >= began + timeout:
            return
        metadata = self._last["metadata"]
        by = f"inventory {metadata['labels'][INVENTORY]}" if INVENTORY in metadata["labels"] else "another client"
        raise HopError(
            "helm",
            seen=f"release {metadata['namespace']}/{self._name} is {self.status} since {began:%H:%M:%S} UTC, by {by}. "
            f"Helm's time-out of {timeout.seconds} s is not over, so helm may still work on it. Nothing was changed",
            fix=f"run again after {began + timeout:%H:%M:%S} UTC: what has not ended by then was interrupted, and is "
            "made again",
        )

    @property
    def pending(self) -> list[dict[str, Any]]:
        """Helm's record of an interrupted managed revision. Helm does not continue while it exists."""
        return [self._records[-1]] if self.begun and self._records and self.status.startswith("pending") else []

    def _find(self, *words: str) -> list[dict[str, Any]]:
        rows = self._ask("list", *STATES, "--filter", f"^{self._name}$", *words)
        return [row for row in rows if row["name"] == self._name]

    def _ask(self, *words: str) -> Any:
        return json.loads(self._run(*words, "--output=json"))

    def _run(self, *words: str, data: str | None = None) -> str:
        return self._helm.run_helm_command([self._helm.get_helm_binary(), *words], data=data)[1]

    @property
    def values(self) -> dict[str, Any]:
        return self._told.get("config") or {}

    @property
    def changes(self) -> list[str]:
        """What of chart and values is not as wanted."""
        wanted = self._helm.params
        chart = f"{wanted['chart_name']}-{wanted['chart_version']}"
        return ([f"chart: {self.chart or 'none'} -> {chart}"] if self.chart != chart else []) + [
            f"{path}: {before} -> {after}" for path, before, after in shown_differences(self.values, self._wanted)
        ]

    def is_as_wanted(self) -> bool:
        same = self.values == self._wanted and not self.changes
        return self.owned and self.status == "deployed" and same

    def objects(self) -> list[dict[str, Any]]:
        """What helm has put into the cluster; where a revision broke off, what those before it did, too."""
        texts = [self._told.get("manifest", "")]
        for record in self._records[:-1]:
            texts.append(self._run("get", "manifest", self._name, f"--revision={_revision(record)}"))
        found = [manifest for text in texts for manifest in read_manifest(text)]
        return list({(manifest["apiVersion"], _title(manifest)): manifest for manifest in found}.values())

    def install(self) -> None:
        """The mark is in the record from the first moment on, so an interrupted release is also managed."""
        wanted = self._helm.params
        folder = wanted["chart_folder"]
        mark = f"--labels={RELEASE}={self._name},{INVENTORY}={self._inventory}"
        words = ("upgrade", self._name, folder, "--install", "--reset-values", mark, self._timeout, "--values=-")
        self._run(*words, data=json.dumps(self._wanted))

    def uninstall(self) -> None:
        hooks = [] if self._helm.params["hooks"] else ["--no-hooks"]
        self._run("uninstall", self._name, "--wait", self._timeout, *hooks)

    @property
    def _timeout(self) -> str:
        return f"--timeout={self._helm.params['timeout']}s"


def _records(service: K8sService, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Helm's records of the release, by revision."""
    selector = f"owner=helm,name={params['release_name']}"
    found = service.find("Secret", "v1", namespace=params["release_namespace"], label_selectors=[selector])
    return sorted(found["resources"], key=_revision)


def _since_deployed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """From the one that was deployed last on; all, if none was."""
    deployed = [number for number, record in enumerate(records) if _was_deployed(record)]
    return records[deployed[-1] if deployed else 0 :]


def _revision(record: Mapping[str, Any]) -> int:
    return int(record["metadata"]["labels"]["version"])


def _was_deployed(record: Mapping[str, Any]) -> bool:
    """Also where it is being removed: helm writes that into the record of what is deployed."""
    return record["metadata"]["labels"]["status"] in ("deployed", "superseded", "uninstalling", "uninstalled")


def _is_marked(record: Mapping[str, Any], inventory: str) -> bool:
    marks = record["metadata"]["labels"]
    return RELEASE in marks and marks.get(INVENTORY) == inventory


def _written(record: Mapping[str, Any]) -> datetime:
    """When helm wrote the record, by the clock of the API server."""
    metadata = record["metadata"]
    times = [entry["time"] for entry in metadata.get("managedFields") or () if entry.get("time")]
    return max(map(datetime.fromisoformat, [metadata["creationTimestamp"], *times]))


def server_time(service: K8sService) -> datetime:
    answer = service.client.client.request("GET", "/version", serialize=False)
    return parsedate_to_datetime(answer.headers["Date"])


def shown_differences(before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """Path of each value that differs, with the value before and after. Of a secret: whether it is set."""
    for path, (one, shown_one), (other, shown_other) in _differences(
        "", (before, redacted(before)), (after, redacted(after))
    ):
        yield path, _shown(one, shown_one), _shown(other, shown_other)


def _differences(path: str, before: Shown, after: Shown) -> Iterator[tuple[str, Shown, Shown]]:
    """Each side comes with how it may be shown, which has the same shape."""
    if before[0] == after[0]:
        return
    (one, shown_one), (other, shown_other) = ((value or {}, shown or {}) for value, shown in (before, after))
    if not isinstance(one, dict) or not isinstance(other, dict) or not (one or other):
        yield path, before, after
        return
    for key in sorted({*one, *other}):
        inner = f"{path}.{key}" if path else key
        yield from _differences(inner, (one.get(key), shown_one.get(key)), (other.get(key), shown_other.get(key)))


def _shown(value: Any, shown: Any) -> str:
    if value is None:
        return "not set"
    return "set" if shown == HIDDEN else json.dumps(shown)


def read_manifest(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a manifest, without documents that a condition left empty and without fields that have no value.

    Helm leaves those out, too. A chart writes `annotations:` with nothing below it. A patch with that would take away
    all annotations, those of Helm and of others too.
    """

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Reads a bare `=`, to which YAML 1.1 gives another meaning, as text."""

    Loader.add_constructor("tag:yaml.org,2002:value", Loader.construct_yaml_str)
    for document in yaml.load_all(text, Loader=Loader):
        if document:
            yield _without_nulls(document)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def missing_kinds(service: K8sService, kinds: list[str]) -> list[str]:
    """Those of `kinds` that are not served. Asked anew: the library's own answer comes from a file."""
    versions = sorted({kind.rpartition("/")[0] for kind in kinds})
    served = {f"{version}/{kind}" for version in versions for kind in _served(service, version)}
    return [kind for kind in kinds if kind not in served]


def _served(service: K8sService, version: str) -> list[str]:
    try:
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        answer = service.client.client.request("GET", path, serialize=False)
    except NotFoundError:
        return []
    return [resource["kind"] for resource in json.loads(answer.data)["resources"]]


@contextmanager
def dry(service: K8sService) -> Iterator[None]:
    """Writes are dry runs of the API server."""
    before, service.client.dry_run = service.client.dry_run, True
    try:
        yield
    finally:
        service.client.dry_run = before


def put_back(service: K8sService, release: Release, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects that were not as the release has them, by title, with their difference. Secrets are left out."""
    objects = [manifest for manifest in release.objects() if manifest["kind"] != "Secret"]
    for wanted in create_definitions({"resource_definition": objects, "namespace": params["release_namespace"]}):
        marks = wanted["metadata"].setdefault("labels", {})
        marks |= {RELEASE: params["release_name"], INVENTORY: params["inventory_id"]}
        done = perform_action(service, wanted, {})
        if done["changed"]:
            title = _title(done["result"])
            yield title, {"before_header": title, "after_header": title, **redacted(_difference(done))}


def remove_one_by_one(service: K8sService, release: Release, params: Mapping[str, Any]) -> Iterator[str]:
    """Removes the objects of a release that helm cannot remove, by title, and then helm's record of it.

    helm fails if a kind in it is no longer served, and when an installation of it broke off.
    What holds data stays, and what the chart keeps.
    """
    for wanted in create_definitions(
        {"resource_definition": release.objects(), "namespace": params["release_namespace"]}
    ):
        if _is_kept(wanted) or missing_kinds(service, [f"{wanted['apiVersion']}/{wanted['kind']}"]):
            continue
        metadata = wanted["metadata"]
        found = service.find(wanted["kind"], wanted["apiVersion"], metadata["name"], metadata.get("namespace"))
        yield from _remove(service, [manifest for manifest in found["resources"] if _is_of(manifest, params)])
    yield from _remove(service, _records(service, params))


def remove_left(service: K8sService, params: Mapping[str, Any]) -> Iterator[str]:
    """Removes what a managed release has left outside of its namespace: helm forgets it with the namespace."""
    for version, kind in ELSEWHERE:
        marks = [f"{RELEASE}={params['release_name']}", f"{INVENTORY}={params['inventory_id']}"]
        found = service.find(kind, version, label_selectors=marks)
        yield from _remove(service, [manifest for manifest in found["resources"] if _is_of(manifest, params)])


def _is_kept(wanted: Mapping[str, Any]) -> bool:
    notes = wanted["metadata"].get("annotations") or {}
    return wanted["kind"] == "PersistentVolumeClaim" or notes.get(HELM_POLICY) == "keep"


def _is_of(seen: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    notes = seen["metadata"].get("annotations") or {}
    return (notes.get(HELM_NAME), notes.get(HELM_NAMESPACE)) == (params["release_name"], params["release_namespace"])


def _remove(service: K8sService, objects: list[dict[str, Any]]) -> Iterator[str]:
    """Each as it was found: an object that was made anew meanwhile, or a record that was written, stays."""
    for manifest in objects:
        fields = ("uid", "resourceVersion") if manifest["kind"] == "Secret" else ("uid",)
        preconditions = {field: manifest["metadata"][field] for field in fields}
        service.module.params["delete_options"] = {"preconditions": preconditions}  # as kubernetes.core.k8s has it
        if perform_action(service, manifest, {"state": "absent"})["changed"]:
            yield _title(manifest)


def _title(seen: dict[str, Any]) -> str:
    metadata = seen["metadata"]
    return f"{seen['kind']} {'/'.join(filter(None, (metadata.get('namespace'), metadata['name'])))}"


def _difference(done: dict[str, Any]) -> dict[str, Any]:
    if done["method"] == "create":
        return {"before": "", "after": done["result"]}
    return done.get("diff") or {"before": "", "after": ""}


class Run:
    """One run of the module, and what it has changed until now."""

    def __init__(self, module: AnsibleK8SModule) -> None:
        self._module, self._params = module, module.params
        self._helm = AnsibleHelmModule(module=module._module)
        self._values = module.params["release_values"]
        module.params["release_values"] = redacted(self._values)  # -vvv shows the parameters
        self._mask(module.params)
        self._mask(self._values)
        checked_inventory(module.params["inventory_id"])
        check_kubeconfig(module.params)
        self._service = K8sService(get_api_client(module), module)
        self._release = self._read_release()
        self.changed = False
        self.diff: list[dict[str, Any]] = []
        self.result: dict[str, Any] = {
            **{name: getattr(self._release, name) for name in ("owned", "made_by", "begun", "status", "chart")},
            "changes": [],
            "missing_kinds": [],
            "objects": [],
        }

    def _read_release(self) -> Release:
        release = Release(self._helm, self._values, self._service)
        self._mask(release.values)  # they may belong to a release that this module does not manage
        return release

    def _mask(self, values: Mapping[str, Any]) -> None:
        """Helm's own messages may repeat a value."""
        self._module._module.no_log_values.update(masked_texts(values))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other run changes the release meanwhile; what this one knows of it is read again before."""
        if self._module.check_mode:
            yield
            return
        with self._lease().held():
            self._release = self._read_release()
            self._release.refuse_if_helm_works(server_time(self._service))
            yield

    def _lease(self) -> Lease:
        name, namespace, inventory = (
            self._params[option] for option in ("release_name", "release_namespace", "inventory_id")
        )
        return Lease(
            KubeClient(connect({option: self._params[option] for option in AUTH_ARG_SPEC})),
            {"name": f"kubegpu-{name}", "namespace": namespace, "labels": labels(inventory)},
            f"inventory {inventory} on {gethostname()} ({uuid4().hex[:8]})",
            lambda: server_time(self._service),
            f"release {namespace}/{name}",
        )

    def bring(self) -> None:
        if self._release.begun or self._release.owned or self._params["adopt"]:
            self._release.refuse_if_helm_works(server_time(self._service))
        missing = missing_kinds(self._service, self._params["kinds"])
        differs = not self._release.is_as_wanted() or bool(missing)
        self.result |= {"missing_kinds": missing, "differs": differs, "changes": self._release.changes}
        if self._params["chart_folder"] and differs:
            self._install()
            missing = []
        if self._release.is_as_wanted() and not missing:
            self._put_back()
        self.changed |= bool(self.diff)

    def _put_back(self) -> None:
        """Only what differs needs the Lease, so that a run which changes nothing writes nothing."""
        self._lease().refuse_if_held()
        with dry(self._service):
            if not any(put_back(self._service, self._release, self._params)):
                return
        with self._alone():
            if not self._release.is_as_wanted():
                raise HopError(
                    "helm",
                    seen=f"release {self._params['release_name']} was changed by another run meanwhile: "
                    f"{'; '.join(self._release.changes) or self._release.status}. Nothing was changed by this one",
                    fix="run again, one run at a time",
                )
            for title, difference in put_back(self._service, self._release, self._params):
                self.result["objects"].append(title)
                self.diff.append(difference)

    def _install(self) -> None:
        self._refuse_one_of_others()
        with self._alone():
            self._refuse_one_of_others()  # what was read again may have another maker
            self.changed = True
            if self._module.check_mode:
                return
            if self._release.owned and self._release.must_go:
                self.result["objects"] += remove_one_by_one(self._service, self._release, self._params)
            else:
                list(_remove(self._service, self._release.pending))
            self._release.install()
            self._release = self._read_release()

    def _refuse_one_of_others(self) -> None:
        made_by = self._release.made_by
        if made_by and not self._params["adopt"]:
            raise CoreException(f"release {self._params['release_name']} {made_by}; adopt takes it over")

    def remove(self) -> None:
        if self._release.made_by:
            return
        if not self._release.status:
            self._note(remove_left(self._service, self._params))
            return
        self._release.refuse_if_helm_works(server_time(self._service))
        with self._alone():
            self._remove_release()

    def _remove_release(self) -> None:
        release = self._release
        if not release.status or release.made_by:  # another run was faster
            return
        kinds = [f"{manifest['apiVersion']}/{manifest['kind']}" for manifest in release.objects()]
        if release.status == "deployed" and not missing_kinds(self._service, kinds):
            self.changed = True
            if not self._module.check_mode:
                release.uninstall()
            return
        self._note(remove_one_by_one(self._service, release, self._params))
        self._note(remove_left(self._service, self._params))

    def _note(self, removed: Iterable[str]) -> None:
        for title in removed:
            self.changed = True
            self.result["objects"].append(title)


def main() -> None:
    module = AnsibleK8SModule(
        argument_spec={**AUTH_ARG_SPEC, **ARGUMENTS}, supports_check_mode=True, required_if=NEEDED
    )
    try:
        run = Run(module)
    except FAILURES as error:
        module.fail_json(msg=str(error))
    try:
        run.bring() if module.params["state"] == "present" else run.remove()
    except FAILURES as error:
        module.fail_json(msg=str(error), changed=run.changed or bool(run.diff), result=run.result)
    module.exit_json(changed=run.changed, result=run.result, diff=run.diff)


if __name__ == "__main__":
    main()
