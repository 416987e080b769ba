"""A release of Helm: its records, its manifest, and the values that differ."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.helm import (
    Release,
    WantedRelease,
    read_manifest,
    read_release,
    release_objects,
    shown_differences,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import SECRETS, KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from fake_cluster import FakeTransport

MANIFEST = """
---
# Source: exporter/templates/service.yaml
apiVersion: v1
kind: Service
metadata:
  name: exporter
  annotations:
spec:
  ports: [{name: metrics, nodePort: null}]
---
# A document that a condition left empty.
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: rules}
spec: {operators: [=, "!="]}
"""


def test_empty_documents_and_fields_without_a_value_are_left_out() -> None:
    service, _ = read_manifest(MANIFEST, "ml")
    metadata = {"namespace": "ml", "name": "exporter"}
    assert (service["metadata"], service["spec"]) == (metadata, {"ports": [{"name": "metrics"}]})


def test_a_bare_equals_sign_is_text() -> None:
    *_, rule = read_manifest(MANIFEST, "ml")
    assert rule["spec"]["operators"] == ["=", "!="]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"grafana": {"enabled": True}}, {}, [("grafana.enabled", "true", "not set")]),
        ({"retention": "10d"}, {"retention": "24h"}, [("retention", '"10d"', '"24h"')]),
        ({"replicas": 2}, {"replicas": {"min": 2}}, [("replicas", "2", '{"min": 2}')]),
        ({}, {"affinity": {}}, [("affinity", "not set", "{}")]),
        ({"same": [1]}, {"same": [1]}, []),
    ],
)
def test_each_value_that_differs_is_named(before: Any, after: Any, shown: list[tuple[str, str, str]]) -> None:
    assert list(shown_differences(before, after)) == shown


PLANTED: dict[str, dict[str, Any]] = {
    "password": {"grafana": {"adminPassword": "s3cret"}},
    "login in a list": {
        "remoteWrite": [{"url": "https://me:s3cret@metrics.example", "basicAuth": {"password": "s3cret"}}]
    },
    "webhook": {"receivers": [{"slack_configs": [{"api_url": "https://chat.example/s3cret"}]}]},
    "variable": {"env": [{"name": "DB_PASSWORD", "value": "s3cret"}]},
    "address": {"GF_DATABASE_URL": "postgres://u:s3cret@db/grafana"},
    "argument": {"extraArguments": ["--password=s3cret"]},
}


@pytest.mark.parametrize("values", PLANTED.values(), ids=PLANTED.keys())
@pytest.mark.parametrize("theirs", [True, False], ids=["of their release", "of ours"])
def test_a_secret_is_not_shown_on_either_side(values: dict[str, Any], theirs: bool) -> None:
    [(path, before, after)] = shown_differences(values if theirs else {}, {} if theirs else values)
    assert path.partition(".")[0] in values
    assert "s3cret" not in before + after
    assert "not set" in (before, after)


def test_a_secret_that_changes_is_a_difference() -> None:
    before, after = ({"grafana": {"adminPassword": word}} for word in ("first", "second"))
    assert list(shown_differences(before, after)) == [("grafana.adminPassword", "set", "set")]


def test_a_list_of_a_kind_is_its_items() -> None:
    text = """
apiVersion: v1
kind: ConfigMapList
items: [{metadata: {name: one}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: other}}]
"""
    one, two = read_manifest(text, "ml")
    assert one == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "ml"}}
    assert two["metadata"]["namespace"] == "other"


WANTED = WantedRelease(
    name="exporter",
    namespace="ml",
    inventory="prod",
    chart="exporter",
    version="1.0.0",
    folder="",
    values={},
    kinds=[],
    adopt=False,
    hooks=True,
    timeout_s=300,
)
LABELS = WANTED.labels
THEIRS: dict[str, str] = {}
BEGAN = datetime(2026, 5, 4, 10, tzinfo=UTC)


class FakeHelm:
    """Lists one release, which `labels` select, and remembers what was run and which values were masked."""

    def __init__(self, status: str, labels: dict[str, str]) -> None:
        self._rows = [{"name": "exporter", "status": status, "chart": "exporter-1.0.0"}] if status else []
        self._is_ours = labels == LABELS
        self.commands: list[tuple[str, ...]] = []
        self.masked: list[Any] = []

    def run(self, *words: str, data: str | None = None) -> str:
        self.commands.append(words)
        if words[0] == "list":
            return json.dumps(self._rows if self._is_ours or "--selector" not in words else [])
        if words[0] == "status":
            return json.dumps({"config": {"theirs": 1}, "manifest": MANIFEST})
        return MANIFEST.replace("exporter", "of-before")

    def mask(self, values: Any) -> None:
        self.masked.append(values)


def record(version: int, status: str, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {
        "name": f"v{version}",
        "namespace": "ml",
        "labels": {"owner": "helm", "name": "exporter", "version": str(version), "status": status, **labels},
        "creationTimestamp": "2026-05-04T09:00:00Z",
        "managedFields": [{"time": "2026-05-04T10:00:00Z"}],
    }
    return {"metadata": metadata}


def release_of(status: str, *records: dict[str, Any]) -> tuple[FakeHelm, Release]:
    known = {key: value for key, value in records[-1]["metadata"]["labels"].items() if key in LABELS} if records else {}
    helm = FakeHelm(status, known)
    transport = FakeTransport({f"GET {SECRETS.path('ml')}": {"items": list(records)}})
    return helm, read_release(helm, KubeClient(transport), WANTED)


STAGING = {**LABELS, "kubegpu.autoscale/inventory": "staging"}
CASES = {
    "no release": ("", [], (False, False, "", False)),
    "ours": ("deployed", [record(1, "deployed", LABELS)], (True, True, "", False)),
    "of a user": ("deployed", [record(1, "deployed", THEIRS)], (False, False, "was not created by", False)),
    "of another inventory": ("deployed", [record(1, "deployed", STAGING)], (False, False, "inventory staging", False)),
    "an interrupted adoption": (
        "pending-upgrade",
        [record(1, "deployed", THEIRS), record(2, "pending-upgrade", LABELS)],
        (False, True, "was not created by", False),
    ),
    "an interrupted upgrade": (
        "failed",
        [record(1, "superseded", THEIRS), record(2, "deployed", LABELS), record(3, "failed", LABELS)],
        (True, True, "", False),
    ),
    "an interrupted installation": ("pending-install", [record(1, "pending-install", LABELS)], (True, True, "", True)),
    "an interrupted removal": ("uninstalling", [record(1, "uninstalling", LABELS)], (True, True, "", True)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_revision_that_was_deployed_decides_who_manages_a_release(name: str) -> None:
    status, records, (owned, begun, made_by, must_be_reinstalled) = CASES[name]
    _helm, release = release_of(status, *records)
    assert (release.owned, release.begun, release.must_be_reinstalled) == (owned, begun, must_be_reinstalled)
    assert made_by in release.made_by
    assert bool(made_by) == bool(release.made_by)


def test_the_values_of_a_release_are_masked() -> None:
    helm, release = release_of("deployed", record(1, "deployed", THEIRS))
    assert helm.masked == [release.values] == [{"theirs": 1}]
    assert release.changes(WANTED) == ["theirs: 1 -> not set"]


def test_objects_of_an_interrupted_upgrade_are_those_of_both_revisions() -> None:
    helm, release = release_of("failed", record(1, "deployed", LABELS), record(2, "failed", LABELS))
    names = [manifest["metadata"]["name"] for manifest in release_objects(helm, release, WANTED)]
    assert names == ["exporter", "rules", "of-before"]
    assert helm.commands[-1] == ("get", "manifest", "exporter", "--revision=1")


@pytest.mark.parametrize(("minutes", "fails"), [(4, True), (5, False)])
def test_helm_may_work_until_its_timeout(minutes: int, fails: bool) -> None:
    """By the time at which helm wrote its record last."""
    _helm, release = release_of("pending-install", record(1, "pending-install", LABELS))
    now = BEGAN.replace(minute=minutes)
    if not fails:
        release.fail_if_helm_works(WANTED, lambda: now)
        return
    with pytest.raises(HopError, match=r"since 10:00:00 UTC, by inventory prod.*helm may still work on it"):
        release.fail_if_helm_works(WANTED, lambda: now)
