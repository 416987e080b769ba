"""A release of a chart with manual changes, against a real API server."""

from __future__ import annotations

import gzip
import json
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from control_plane import ControlPlane, eventually
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException
from module_process import run_module
from planted import VALUES, hides, watched_processes
from playbook import ACCESS, changed, local, run_playbook
from programs import program
from served_kinds import SERVED_S, is_served
from workloads import Workloads

MARK, INVENTORY = "kubegpu.autoscale/release", "prod"

# After it a pending release is taken for one that broke off.
HELM_TIMEOUT_S = 1


def play(tasks: str) -> list[dict[str, Any]]:
    return local(
        {"ansible.builtin.include_role": {"name": "kubegpu.autoscale._common", "tasks_from": tasks, "apply": ACCESS}}
    )


TEMPLATES = """
apiVersion: v1
kind: ConfigMap
metadata: {name: counters, namespace: {{ .Release.Namespace }}}
data: {metrics: {{ .Values.metrics | default "DCGM_FI_DEV_GPU_UTIL" }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Release.Namespace }}-reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
# A document that a condition left empty.
---
apiVersion: v1
kind: Service
metadata:
  name: exporter
  annotations:
spec: {selector: {app: exporter}, ports: [{name: metrics, port: 9400}]}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
type: {{ .Values.type | default "Opaque" }}
stringData: {password: as-installed}
{{- if .Values.data }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: series}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: policy, annotations: {helm.sh/resource-policy: keep}}
{{- end }}
{{- if .Values.hook }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: pruned, annotations: {helm.sh/hook: post-delete}}
{{- end }}
{{- if .Values.widget }}
---
apiVersion: kubegpu.test/v1
kind: Widget
metadata: {name: exporter}
{{- end }}
"""
WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.kubegpu.test}
spec:
  group: kubegpu.test
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"""
# The API server takes no other type for a Secret that is there: helm fails in the middle of an upgrade.
REFUSED = {"type": "kubegpu.test/other"}


class Release:
    """Of a chart of two namespaced objects, a cluster-wide one and a Secret, in a namespace of its own."""

    def __init__(self, folder: Path, plane: ControlPlane, kube: client.ApiClient, namespace: str) -> None:
        self._folder, self._kubeconfig, self.namespace = folder, str(plane.kubeconfig), namespace
        self.objects, self.rights = client.CoreV1Api(kube), client.RbacAuthorizationV1Api(kube)
        self.chart = folder / "exporter"
        (self.chart / "templates").mkdir(parents=True)
        (self.chart / "Chart.yaml").write_text("{apiVersion: v2, name: exporter, version: 1.0.0}")
        (self.chart / "templates" / "all.yaml").write_text(TEMPLATES)
        self._repository = folder / "repository"
        self._repository.mkdir()

    def helm(self, *words: object) -> str:
        where = ["--kubeconfig", self._kubeconfig, "--namespace", self.namespace]
        return subprocess.run(
            [str(word) for word in (program("helm"), *where, *words)], check=True, capture_output=True, text=True
        ).stdout

    def install(self, *, ours: bool) -> None:
        self.helm("install", "exporter", self.chart, "--set=theirs=1")
        if ours:
            self.helm(
                "upgrade",
                "exporter",
                self.chart,
                "--reset-values",
                f"--labels={MARK}=exporter,kubegpu.autoscale/inventory={INVENTORY}",
            )

    def module(self, inventory: str, *, check: bool = False, **options: Any) -> dict[str, Any]:
        """Runs the module alone, as the role does it for an inventory."""
        where = {"kubeconfig": self._kubeconfig, "binary_path": str(program("helm")), "inventory_id": inventory}
        known = {"release_name": "exporter", "release_namespace": self.namespace}
        chart = {"chart_name": "exporter", "chart_version": "1.0.0", "chart_folder": str(self.chart)}
        return run_module("chart_release", {**where, **known, **chart, **options}, check=check)

    def make(self, *, check: bool = False, **values: Any) -> dict[str, Any]:
        """The module alone, for the inventory that the roles run for."""
        done = self.module(INVENTORY, release_values=values, timeout=HELM_TIMEOUT_S, check=check)
        assert not done.get("failed")
        return done

    def remove(self) -> dict[str, Any]:
        done = self.module(INVENTORY, state="absent", timeout=HELM_TIMEOUT_S)
        assert not done.get("failed")
        return done

    def run(self, tasks: str, *flags: str, **chart: Any) -> subprocess.CompletedProcess[str]:
        known = {"name": "exporter", "version": "1.0.0", "repository": "http://upstream.test/charts"}
        known |= {"release": "exporter", "namespace": self.namespace, "values": {}, "kinds": [], "crd_group": ""}
        variables = {
            "kubegpu_kubeconfig": self._kubeconfig,
            "kubegpu_helm_binary": str(program("helm")),
            "kubegpu_cluster_ready": True,
            "exporter_adopt": False,
            "kubegpu_inventory_id": INVENTORY,
            # What has not ended since was interrupted.
            "kubegpu_helm_timeout": HELM_TIMEOUT_S,
            "_common_chart": {**known, "adopt": "exporter_adopt", **chart},
        }
        self.helm("package", self.chart, "--destination", self._repository)
        with served(self._repository, self.helm) as mirror:
            return run_playbook(self._folder, play(tasks), {"kubegpu_chart_mirror": mirror, **variables}, *flags)

    def bring(self, *flags: str, **chart: Any) -> str:
        done = self.run("chart_present", *flags, **chart)
        assert done.returncode == 0
        return done.stdout

    def record(self) -> list[dict[str, Any]]:
        """All that is in the namespace, and the ClusterRole, as they are to the byte."""
        lists = (
            self.objects.list_namespaced_config_map(self.namespace),
            self.objects.list_namespaced_service(self.namespace),
            self.objects.list_namespaced_secret(self.namespace),
            self.rights.list_cluster_role(field_selector=f"metadata.name={self.namespace}-reader"),
        )
        return [item.to_dict() for found in lists for item in found.items]

    def objects_there(self) -> dict[str, str]:
        """Of each object that is not about to go, its name and its identity; without helm's own records."""
        claims = self.objects.list_namespaced_persistent_volume_claim(self.namespace).items
        found = [*self.record(), *(claim.to_dict() for claim in claims)]
        return {
            item["metadata"]["name"]: item["metadata"]["uid"]
            for item in found
            if item["metadata"]["deletion_timestamp"] is None
            and (item["metadata"]["labels"] or {}).get("owner") != "helm"
        }

    def interrupt(self, revision: int, status: str) -> None:
        """Leaves helm's record of a revision as a helm that is killed in the middle does."""
        name = f"sh.helm.release.v1.exporter.v{revision}"
        written = self.objects.read_namespaced_secret(name, self.namespace).data["release"]
        release = json.loads(gzip.decompress(b64decode(b64decode(written))))
        release["info"]["status"] = status
        data = {"release": b64encode(b64encode(gzip.compress(json.dumps(release).encode()))).decode()}
        patch = {"metadata": {"labels": {"status": status}}, "data": data}
        self.objects.patch_namespaced_secret(name, self.namespace, patch)
        time.sleep(HELM_TIMEOUT_S + 1)  # the API server's clock counts whole seconds

    def port(self) -> str:
        return self.objects.read_namespaced_service("exporter", self.namespace).spec.ports[0].name

    def counters(self) -> list[str]:
        found = self.objects.list_namespaced_config_map(self.namespace, field_selector="metadata.name=counters")
        return [config_map.data["metrics"] for config_map in found.items]

    def password(self) -> str:
        return b64decode(self.objects.read_namespaced_secret("login", self.namespace).data["password"]).decode()

    def break_it(self) -> None:
        self.objects.delete_namespaced_config_map("counters", self.namespace)
        port = [{"op": "replace", "path": "/spec/ports/0/name", "value": "http"}]
        self.objects.patch_namespaced_service("exporter", self.namespace, port)
        self.objects.patch_namespaced_secret("login", self.namespace, {"stringData": {"password": "by-hand"}})


@contextmanager
def served(folder: Path, helm: Callable[..., str]) -> Iterator[str]:
    """The folder as a mirror of `upstream.test` has it."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        helm("repo", "index", folder, "--url", f"{address}/upstream.test/charts")
        Thread(target=server.serve_forever, daemon=True).start()
        yield address
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix("/upstream.test/charts"))

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def release(tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads) -> Iterator[Release]:
    release = Release(tmp_path, *plane, workloads.namespace)
    yield release
    with suppress(ApiException):
        release.rights.delete_cluster_role(f"{release.namespace}-reader")


def test_it_is_marked_stays_and_goes(release: Release) -> None:
    assert changed(release.bring()) > 0
    labels = [item["metadata"]["labels"] or {} for item in release.record()]
    assert [MARK in object_labels for object_labels in labels if object_labels.get("app.kubernetes.io/managed-by")] == [
        True,
        True,
        False,
        True,
    ]
    assert [object_labels[MARK] for object_labels in labels if object_labels.get("owner") == "helm"] == ["exporter"]
    assert changed(release.bring()) == 0
    assert release.run("chart_absent").returncode == 0
    assert [item["metadata"]["name"] for item in release.record()] == []


def test_one_of_somebody_else_is_neither_changed_nor_removed(release: Release) -> None:
    release.install(ours=False)
    release.break_it()
    before = release.record()
    for run in (release.run("chart_present"), release.run("chart_present", values={"ours": 1})):
        assert run.returncode == 2
        assert "was not created by this collection" in run.stdout
    assert "theirs: 1 -> not set" in run.stdout
    assert "ours: not set -> 1" in run.stdout
    assert "-e exporter_adopt=true" in run.stdout
    assert release.run("chart_absent").returncode == 0
    assert release.record() == before


def test_one_of_somebody_else_is_taken_over_if_they_say_so(release: Release) -> None:
    release.install(ours=False)
    shown = release.bring("--extra-vars=exporter_adopt=true")
    assert "theirs: 1 -> not set" in shown
    assert changed(release.bring()) == 0
    assert release.run("chart_absent").returncode == 0
    assert release.record() == []


@pytest.mark.parametrize("status", ["failed", "pending-upgrade"])
def test_a_take_over_that_broke_off_removes_nothing(release: Release, status: str) -> None:
    release.install(ours=False)
    before = release.objects_there()
    assert release.module(INVENTORY, adopt=True, release_values=REFUSED)["failed"]
    release.interrupt(2, status)

    refused = release.run("chart_present")
    assert refused.returncode == 2
    assert "was not created by this collection" in refused.stdout
    assert "-e exporter_adopt=true" in refused.stdout
    release.remove()
    assert release.objects_there() == before

    assert release.module(INVENTORY, adopt=True, timeout=HELM_TIMEOUT_S)["changed"]
    assert not release.make()["changed"]
    assert release.objects_there() == before


@pytest.mark.parametrize("status", ["failed", "pending-upgrade"])
def test_an_upgrade_that_broke_off_is_made_again(release: Release, status: str) -> None:
    release.make(data=True)
    before = release.objects_there()
    assert release.module(INVENTORY, release_values={"data": True, **REFUSED})["failed"]
    release.interrupt(2, status)

    release.make(data=True)
    assert release.objects_there() == before
    assert not release.make(data=True)["changed"]


def test_an_installation_that_broke_off_is_made_anew_with_its_data(release: Release) -> None:
    release.make(data=True)
    before = release.objects_there()
    release.interrupt(1, "pending-install")

    release.bring(values={"data": True})
    after = release.objects_there()
    kept = {"series", "policy"}
    assert {name for name in before if before[name] == after[name]} == kept


def test_of_an_upgrade_that_broke_off_both_revisions_go(release: Release) -> None:
    release.install(ours=True)
    release.helm(
        "upgrade",
        "exporter",
        release.chart,
        f"--labels={MARK}=exporter,kubegpu.autoscale/inventory={INVENTORY}",
        "--set=data=true",
    )
    (release.chart / "templates" / "all.yaml").write_text(TEMPLATES.replace("name: counters", "name: counters-of-now"))
    assert release.module(INVENTORY, release_values=REFUSED)["failed"]
    release.remove()
    assert set(release.objects_there()) == {"series", "policy"}


@pytest.mark.parametrize("hooks", [True, False])
def test_the_hooks_of_a_removal_are_left_out_if_they_say_so(release: Release, hooks: bool) -> None:
    release.make(hook=True)
    assert release.run("chart_absent", hooks=hooks).returncode == 0
    assert list(release.objects_there()) == (["pruned"] if hooks else [])


def test_what_went_with_its_crd_comes_back_and_the_rest_stays(release: Release, kube: client.ApiClient) -> None:
    (release.chart / "crds").mkdir()
    (release.chart / "crds" / "widgets.yaml").write_text(WIDGETS)
    chart = {"values": {"widget": True}, "kinds": ["kubegpu.test/v1/Widget"], "crd_group": "kubegpu.test"}
    release.bring(**chart)
    before = release.objects_there()
    crds, widgets = client.ApiextensionsV1Api(kube), client.CustomObjectsApi(kube)
    crds.delete_custom_resource_definition("widgets.kubegpu.test")
    # The API server ends its objects first.
    eventually(lambda: not is_served(kube, "kubegpu.test", "Widget"), "the kind is gone", SERVED_S)

    release.bring(**chart)
    assert widgets.get_namespaced_custom_object("kubegpu.test", "v1", release.namespace, "widgets", "exporter")
    assert release.objects_there() == before
    assert release.run("chart_absent", **chart).returncode == 0
    assert release.objects_there().keys() == {"series", "policy"} & before.keys()
    assert not is_served(kube, "kubegpu.test", "Widget")


def test_a_removal_that_broke_off_goes_on_after_a_take_over(release: Release) -> None:
    release.install(ours=False)
    assert release.module(INVENTORY, adopt=True)["changed"]
    release.interrupt(2, "uninstalling")
    release.remove()
    assert release.record() == []


def test_what_a_deleted_namespace_leaves_goes_if_it_is_ours(release: Release) -> None:
    release.make()
    release.objects.delete_namespaced_secret("sh.helm.release.v1.exporter.v1", release.namespace)
    release.remove()
    assert "ClusterRole" not in {item.get("kind") for item in release.record()}
    assert release.rights.list_cluster_role(field_selector=f"metadata.name={release.namespace}-reader").items == []


def test_what_was_deleted_or_edited_is_put_back_once(release: Release) -> None:
    release.make()
    assert not release.make()["changed"]
    release.break_it()
    assert release.make(check=True)["changed"]
    assert (release.counters(), release.port()) == ([], "http")
    assert changed(release.bring()) == 1
    assert (release.counters(), release.port()) == (["DCGM_FI_DEV_GPU_UTIL"], "metrics")
    assert not release.make()["changed"]


def test_an_upgrade_changes_what_was_edited_and_restored(release: Release) -> None:
    """Helm 4 applies on the server, where each of the three is another manager of the field."""
    release.make()
    edited = {"data": {"metrics": "by-hand"}}
    release.objects.patch_namespaced_config_map("counters", release.namespace, edited)
    release.make()
    assert release.counters() == ["DCGM_FI_DEV_GPU_UTIL"]

    release.make(metrics="DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    assert release.counters() == ["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]


def test_what_others_added_stays(release: Release) -> None:
    release.make()
    note = {"metadata": {"annotations": {"team": "search"}}}
    release.objects.patch_namespaced_service("exporter", release.namespace, note)
    release.objects.patch_namespaced_config_map("counters", release.namespace, {"data": {"more": "FB_USED"}})
    assert not release.make()["changed"]
    release.break_it()
    release.make()
    annotations = release.objects.read_namespaced_service("exporter", release.namespace).metadata.annotations
    assert {"team", "meta.helm.sh/release-name"} <= set(annotations)


def test_a_secret_is_neither_changed_nor_shown(release: Release) -> None:
    release.make()
    release.break_it()
    shown = release.bring("--diff")
    assert release.password() == "by-hand"
    assert "as-installed" not in shown


def test_no_secret_of_a_release_is_shown_and_each_reaches_helm(release: Release) -> None:
    """Those of a release that somebody else made, and those of the user who adopts it, in each shape."""
    values = VALUES
    theirs = release.chart.parent / "theirs.json"
    theirs.write_text(json.dumps({"theirs": values}))
    with watched_processes() as lines:
        release.helm("install", "exporter", release.chart, "--values", theirs)
        refused = release.run("chart_present", "-vvv", "--diff", values=values)
        adopted = release.run("chart_present", "-vvv", "--diff", "--extra-vars=exporter_adopt=true", values=values)
    assert (refused.returncode, adopted.returncode) == (2, 0)
    assert "The role would change: planted0.grafana.adminPassword: not set -> set" in " ".join(refused.stdout.split())
    assert values.items() <= json.loads(release.helm("get", "values", "exporter", "--output", "json")).items()
    for done in (refused, adopted):
        # ansible-playbook's own command line has the variables of this test.
        assert hides((done.stdout + done.stderr).replace(json.dumps(values), ""))
    assert lines == []


HOOK = """
apiVersion: batch/v1
kind: Job
metadata:
  name: slow
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: slow, image: slow}]}}}
"""


class Slow:
    """A chart whose installation waits for a Job. Nobody runs Jobs here: the test says when it has ended."""

    def __init__(self, release: Release, kube: client.ApiClient) -> None:
        self._release, self._jobs = release, client.BatchV1Api(kube)
        self._leases = client.CoordinationV1Api(kube)
        (release.chart / "templates" / "slow.yaml").write_text(HOOK)

    def has_begun(self) -> bool:
        return bool(self._jobs.list_namespaced_job(self._release.namespace).items)

    def end(self) -> None:
        now = self._leases.list_namespaced_lease(self._release.namespace).items[0].spec.renew_time.isoformat()
        done = [
            {"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("SuccessCriteriaMet", "Complete")
        ]
        status = {"succeeded": 1, "startTime": now, "completionTime": now, "conditions": done}
        self._jobs.patch_namespaced_job_status("slow", self._release.namespace, {"status": status})

    def leases(self) -> list[str]:
        return [lease.metadata.name for lease in self._leases.list_namespaced_lease(self._release.namespace).items]

    def records(self) -> list[str]:
        found = self._release.objects.list_namespaced_secret(self._release.namespace, label_selector="owner=helm")
        return [record.metadata.resource_version for record in found.items]


@pytest.mark.parametrize("upgrade", [False, True], ids=["installation", "upgrade"])
def test_of_two_runs_at_once_one_changes_nothing(release: Release, kube: client.ApiClient, upgrade: bool) -> None:
    """Of one inventory, and of two: with real helm, in the middle of its work."""
    if upgrade:
        release.module("prod")
    slow = Slow(release, kube)
    wanted = {"release_values": {"type": "Opaque"}}
    with ThreadPoolExecutor() as pool:
        first = pool.submit(release.module, "prod", **wanted, timeout=150)
        eventually(slow.has_begun, "helm waits for its hook", 60)
        records, objects = slow.records(), release.objects_there()
        try:
            # It is still within helm's own time-out, or past that and has its Lease.
            for timeout, seen in ((300, "helm may still work on it"), (1, "is being changed by inventory prod on ")):
                for state in ("present", "absent"):
                    refused = release.module("prod", **wanted, state=state, timeout=timeout)
                    assert refused["failed"]
                    assert seen in refused["msg"]
                    assert "Nothing was changed" in refused["msg"]
            other = release.module("staging", **wanted)
            assert "belongs to inventory prod, and kubegpu_inventory_id of this one is staging" in other["msg"]
            other = release.module("staging", **wanted, adopt=True, timeout=1)
            assert "is being changed by inventory prod on " in other["msg"]
            assert release.module("staging", state="absent")["changed"] is False
            assert (slow.records(), release.objects_there()) == (records, objects)
        finally:
            slow.end()
        done = first.result()
    assert (done.get("msg"), done["changed"]) == (None, True)
    assert slow.leases() == []
    again = release.module("prod", **wanted)
    assert (again["changed"], again["result"]["owned"], again["result"]["status"]) == (False, True, "deployed")


def test_objects_are_restored_by_one_run_at_a_time(release: Release, kube: client.ApiClient) -> None:
    """The Lease is there before the first object changes, and until after the last one."""
    release.module("prod")
    leases = client.CoordinationV1Api(kube)
    begun = leases.list_namespaced_lease(release.namespace).metadata.resource_version
    assert release.module("prod")["changed"] is False
    assert events(leases, release.namespace, begun) == [], "a run that changes nothing writes nothing"

    release.break_it()
    assert release.module("prod")["result"]["objects"]
    (added, made), *_renewed, (deleted, gone) = events(leases, release.namespace, begun)
    assert (added, deleted) == ("ADDED", "DELETED")
    restored = release.objects.read_namespaced_config_map("counters", release.namespace).metadata.resource_version
    assert made < int(restored) < gone


def events(leases: client.CoordinationV1Api, namespace: str, since: str) -> list[tuple[str, int]]:
    """What happened to Leases, with the revision of etcd."""
    listed = watch.Watch().stream(leases.list_namespaced_lease, namespace, resource_version=since, timeout_seconds=2)
    return [(event["type"], int(event["object"].metadata.resource_version)) for event in listed]


def test_a_release_of_another_inventory_is_adopted_or_stays(release: Release) -> None:
    assert release.module("staging")["changed"] is True
    before = release.record()
    refused = release.run("chart_present", values={"ours": 1})
    said = " ".join(refused.stdout.split())
    assert "belongs to inventory staging, and kubegpu_inventory_id of this one is prod. Nothing was changed." in said
    assert release.run("chart_absent").returncode == 0
    assert release.record() == before

    assert release.module(INVENTORY, adopt=True)["changed"]
    assert not release.make()["changed"]
    assert release.module("staging", state="absent")["changed"] is False
    release.remove()
    assert release.record() == []


@pytest.mark.parametrize("of", [{}, {"meta.helm.sh/release-name": "other", "meta.helm.sh/release-namespace": "theirs"}])
def test_an_object_of_another_under_the_name_of_one_stays(release: Release, of: dict[str, str]) -> None:
    """It was created after the object of the release was deleted."""
    release.install(ours=True)
    rights, name = release.rights, f"{release.namespace}-reader"
    rights.delete_cluster_role(name)
    labels = {"app.kubernetes.io/managed-by": "kubegpu.autoscale", "kubegpu.autoscale/inventory": "another"}
    theirs = rights.create_cluster_role({"metadata": {"name": name, "labels": labels, "annotations": of}, "rules": []})

    present = release.module(INVENTORY)
    assert present["failed"]
    assert f"ClusterRole {name} exists, but does not belong to release exporter" in present["msg"]
    absent = release.remove()
    assert f"ClusterRole {name} is kept" in str(absent["warnings"])
    assert rights.read_cluster_role(name).metadata.resource_version == theirs.metadata.resource_version
    assert release.objects.list_namespaced_service(release.namespace).items == []
    rights.delete_cluster_role(name)


@pytest.mark.parametrize("variable", ["HELM_DRIVER=configmap", "HELM_NAMESPACE=default", "HELM_KUBECAFILE=/none"])
def test_helm_reads_the_releases_of_the_run_alone(
    release: Release, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    release.install(ours=True)
    monkeypatch.setenv(*variable.split("="))
    assert changed(release.run("chart_absent").stdout) == 1
    monkeypatch.undo()
    assert release.helm("list", "--short") == ""
