# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A Helm release: what helm and its records in the cluster report, and the helm commands that change it.

Records are Secrets, one for each revision. Only their metadata is read, because their content has the values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ansible_collections.kubernetes.core.plugins.module_utils.helm import AnsibleHelmModule

from ..errors import HopError
from ..formats.yaml import manifests
from ..kube.labels import INVENTORY, RELEASE
from ..kube.objects import Manifest
from ..secrets import HIDDEN, masked_texts, redacted
from .kube import SECRETS, KubeClient, title_of

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

# Each state is requested by name: Helm 4 has no `--all`.
STATES = ("--deployed", "--failed", "--pending", "--superseded", "--uninstalled", "--uninstalling")
# States of a record that was deployed. Helm sets the last two on the record of the deployed revision.
_DEPLOYED = ("deployed", "superseded", "uninstalling", "uninstalled")
# Environment variables that would make helm use another cluster or namespace, or store its records outside of Secrets.
_OTHER_RELEASES = ("HELM_DRIVER", "HELM_KUBE", "HELM_NAMESPACE")
# A value, and the same value without secrets.
_Shown = tuple[Any, Any]


@dataclass(frozen=True)
class WantedRelease:
    """The wanted state of a release.

    chart, version: empty for a removal. folder: of the unpacked chart; empty to change nothing but objects.
    kinds:   kinds that the chart's CRDs serve, each as `group/version/Kind`.
    adopt:   upgrade and manage an existing release of another manager.
    hooks:   run the chart's hooks at a removal.
    timeout_s: seconds that helm waits for a single operation.
    """

    name: str
    namespace: str
    inventory: str
    chart: str
    version: str
    folder: str
    values: Mapping[str, Any]
    kinds: Sequence[str]
    adopt: bool
    hooks: bool
    timeout_s: int

    @property
    def labels(self) -> dict[str, str]:
        return {RELEASE: self.name, INVENTORY: self.inventory}

    @property
    def selector(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.labels.items())


@dataclass(frozen=True)
class Release:
    """A release as helm reports it. `status` and `chart` are empty if it does not exist.

    inventory: of this run.
    begun:    this inventory made the last revision.
    values, manifest: of the last revision.
    last:     record of the last revision; None if the release is deployed and begun, because it is not needed then.
    records:  of an interrupted release: from the revision that was deployed last on, all if none was.
    """

    inventory: str
    status: str = ""
    chart: str = ""
    begun: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    manifest: str = ""
    last: Manifest | None = None
    records: Sequence[Manifest] = ()

    @property
    def owned(self) -> bool:
        """Whether this inventory manages it: after an interruption, whether it made the last deployed revision."""
        return _is_of(self.records[0], self.inventory) if self._was_deployed else self.begun

    @property
    def made_by(self) -> str:
        """Its manager, for an error; empty if this inventory manages it, or if it does not exist."""
        if self.owned or not self.status:
            return ""
        labels = self.last["metadata"]["labels"] if self.last else {}
        if RELEASE in labels and labels.get(INVENTORY) not in (None, self.inventory):
            return f"belongs to inventory {labels[INVENTORY]}, and kubegpu_inventory_id of this one is {self.inventory}"
        return "was not created by this collection"

    @property
    def must_be_reinstalled(self) -> bool:
        """Whether nothing of it is in use, and helm cannot upgrade it."""
        return self.status.startswith("uninstall") or (bool(self.records) and not self._was_deployed)

    @property
    def pending(self) -> Sequence[Manifest]:
        """The record of an interrupted revision of this inventory. Helm does not continue while it exists."""
        return self.records[-1:] if self.begun and self.status.startswith("pending") else ()

    @property
    def _was_deployed(self) -> bool:
        return bool(self.records) and _was_deployed(self.records[0])

    def changes(self, wanted: WantedRelease) -> list[str]:
        """Differences of chart and values, one line each, without secrets."""
        chart = f"{wanted.chart}-{wanted.version}"
        return ([f"chart: {self.chart or 'none'} -> {chart}"] if self.chart != chart else []) + [
            f"{path}: {before} -> {after}" for path, before, after in shown_differences(self.values, wanted.values)
        ]

    def is_as(self, wanted: WantedRelease) -> bool:
        """Whether manager, state, chart and values are as wanted."""
        same = self.values == wanted.values and not self.changes(wanted)
        return self.owned and self.status == "deployed" and same

    def fail_if_helm_works(self, wanted: WantedRelease, now: Callable[[], datetime]) -> None:
        """Raises: HopError while an operation of helm may still run. now: the time of the API server."""
        if self.last is None or not self.status.startswith(("pending", "uninstalling")):
            return
        began, timeout = _written(self.last), timedelta(seconds=wanted.timeout_s)
        if now() >= began + timeout:
            return
        labels = self.last["metadata"]["labels"]
        by = f"inventory {labels[INVENTORY]}" if INVENTORY in labels else "another client"
        raise HopError(
            "helm",
            seen=f"release {wanted.namespace}/{wanted.name} is {self.status} since {began:%H:%M:%S} UTC, by {by}. "
            f"Helm's time-out of {timeout.seconds} s is not over, so helm may still work on it. Nothing was changed",
            fix=f"run again after {began + timeout:%H:%M:%S} UTC: an operation that has not ended by then was "
            "interrupted, and is repeated",
        )


class Helm:
    """The helm program. Connection and namespace come from the options of the module, not from the environment."""

    def __init__(self, module: AnsibleModule) -> None:
        for name in [name for name in os.environ if name.startswith(_OTHER_RELEASES)]:
            del os.environ[name]
        self._module = module
        self._helm = AnsibleHelmModule(module=module)

    def run(self, *words: str, data: str | None = None) -> str:
        """The output of helm. Raises: HopError if helm fails."""
        code, out, err = self._helm.run_helm_command(
            [self._helm.get_helm_binary(), *words], fails_on_error=False, data=data
        )
        if code:
            raise HopError(
                "helm",
                seen=f"`helm {words[0]}` failed with exit code {code}: {err.strip() or out.strip()}",
                fix="correct what the message names, then run again",
            )
        return str(out)

    def applies_on_server(self) -> bool:
        """Whether helm applies objects on the server if it may choose: Helm 4, not Helm 3."""
        return str(self._helm.get_helm_version() or "").partition(".")[0] not in ("", "3")

    def mask(self, values: Mapping[str, Any]) -> None:
        """Hides the secrets of values in all output of the module, because helm's errors can contain values."""
        self._module.no_log_values.update(masked_texts(values))


def read_release(helm: Helm, kube: KubeClient, wanted: WantedRelease) -> Release:
    """The release at this moment."""
    managed = _find(helm, wanted, "--selector", wanted.selector)
    found = managed or _find(helm, wanted)
    if not found:
        return Release(wanted.inventory)
    row, begun = found[0], bool(managed)
    shown = json.loads(helm.run("status", wanted.name, "--output=json"))
    values = shown.get("config") or {}
    helm.mask(values)  # the release can have another manager
    interrupted = row["status"] != "deployed"
    records = read_records(kube, wanted) if interrupted or not begun else []
    return Release(
        inventory=wanted.inventory,
        status=row["status"],
        chart=row["chart"],
        begun=begun,
        values=values,
        manifest=shown.get("manifest", ""),
        last=records[-1] if records else None,
        records=_since_deployed(records) if interrupted else (),
    )


def _find(helm: Helm, wanted: WantedRelease, *words: str) -> list[dict[str, Any]]:
    rows = json.loads(helm.run("list", *STATES, "--filter", f"^{wanted.name}$", *words, "--output=json"))
    return [row for row in rows if row["name"] == wanted.name]


def read_records(kube: KubeClient, wanted: WantedRelease) -> list[Manifest]:
    """Helm's records of the release, by revision, without their content."""
    selector = f"owner=helm,name={wanted.name}"
    found = kube.list_metadata(SECRETS, label_selector=selector, namespace=wanted.namespace)
    return sorted(found, key=_revision)


def release_objects(helm: Helm, release: Release, wanted: WantedRelease) -> list[Manifest]:
    """Objects that helm created; after an interrupted revision, also those of the revisions before it."""
    earlier = [
        helm.run("get", "manifest", wanted.name, f"--revision={_revision(record)}") for record in release.records[:-1]
    ]
    found = [manifest for text in (release.manifest, *earlier) for manifest in read_manifest(text, wanted.namespace)]
    return list({(manifest["apiVersion"], title_of(manifest)): manifest for manifest in found}.values())


def install(helm: Helm, wanted: WantedRelease) -> None:
    """The labels are in the record from the first moment on, so an interrupted release is also managed.

    A release is applied by the client, as Helm 3 does: on the server, each field that was restored would be a conflict.
    """
    by_client = ["--server-side=false"] if helm.applies_on_server() else []
    helm.run(
        *("upgrade", wanted.name, wanted.folder, "--install", "--reset-values", f"--labels={wanted.selector}"),
        *(f"--timeout={wanted.timeout_s}s", "--values=-", *by_client),
        data=json.dumps(wanted.values),
    )


def uninstall(helm: Helm, wanted: WantedRelease) -> None:
    hooks = [] if wanted.hooks else ["--no-hooks"]
    helm.run("uninstall", wanted.name, "--wait", f"--timeout={wanted.timeout_s}s", *hooks)


def _since_deployed(records: Sequence[Manifest]) -> Sequence[Manifest]:
    """From the revision that was deployed last on; all, if none was."""
    deployed = [number for number, record in enumerate(records) if _was_deployed(record)]
    return records[deployed[-1] if deployed else 0 :]


def _revision(record: Manifest) -> int:
    return int(record["metadata"]["labels"]["version"])


def _was_deployed(record: Manifest) -> bool:
    return record["metadata"]["labels"]["status"] in _DEPLOYED


def _is_of(record: Manifest, inventory: str) -> bool:
    labels = record["metadata"]["labels"]
    return RELEASE in labels and labels.get(INVENTORY) == inventory


def _written(record: Manifest) -> datetime:
    """When helm wrote the record, by the clock of the API server."""
    metadata = record["metadata"]
    times = [entry["time"] for entry in metadata.get("managedFields") or () if entry.get("time")]
    return max(map(datetime.fromisoformat, [metadata["creationTimestamp"], *times]))


def shown_differences(before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """Path of each value that differs, with the value before and after. For a secret, only whether it is set."""
    for path, (one, shown_one), (other, shown_other) in _differences(
        "", (before, redacted(before)), (after, redacted(after))
    ):
        yield path, _shown(one, shown_one), _shown(other, shown_other)


def _differences(path: str, before: _Shown, after: _Shown) -> Iterator[tuple[str, _Shown, _Shown]]:
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


def read_manifest(text: str, namespace: str) -> Iterator[dict[str, Any]]:
    """The objects of a manifest, in `namespace` unless they name another, without fields that have no value.

    Helm omits those, too. A chart writes `annotations:` with nothing below it, and a patch with that would remove all
    annotations. Lists of a kind are read as their items.
    """
    for document in map(_without_nulls, manifests(text)):
        kind, is_list = document["kind"].removesuffix("List"), "items" in document
        for manifest in document["items"] if is_list else [document]:
            named = {"apiVersion": document["apiVersion"], "kind": kind, **manifest} if is_list else manifest
            yield {**named, "metadata": {"namespace": namespace, **named["metadata"]}}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
