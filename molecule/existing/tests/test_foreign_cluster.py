"""Existing clusters: detected, checked, adopted without a change of replicas, scaled, and left as they were."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml
from foreign import ADMIN, PROMETHEUS, ROOT, Case, Owner, Site, differing, page, until

testinfra_hosts = ["ansible://kube_control_plane"]

POLICY = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
HPA = "horizontalpodautoscalers ml/chat"
OURS = {HPA, "prometheusrules observability/kubegpu-gpu"}
# Made by the Prometheus operator of all rules, ours as well.
RULEFILES = f"configmaps observability/prometheus-{PROMETHEUS}-rulefiles-0"
# What the operator's node-feature-discovery and the operator itself write on a node.
OF_OPERATOR = ("gpu.present", "gpu.deploy.dcgm-exporter", "gpu.deploy.device-plugin")


def operator(owner: Owner) -> None:
    """Its policy owns what it makes: garbage collection takes all of it away with the policy."""
    owner.apply(*page("policy"))
    owner.kubectl("wait", "--for=condition=Established", "crd/clusterpolicies.nvidia.com")
    owner.apply(POLICY)
    uid = owner.kubectl("get", "clusterpolicy", "cluster-policy", "-o", "jsonpath={.metadata.uid}")
    reference = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy", "uid": uid}
    made = page("operator")
    for manifest in made:
        manifest["metadata"]["ownerReferences"] = [{**reference, "controller": True, "blockOwnerDeletion": True}]
    owner.kubectl("label", "nodes", "--all", *(f"nvidia.com/{label}=true" for label in OF_OPERATOR))
    owner.apply(*made)


def no_operator(owner: Owner) -> None:
    owner.kubectl("delete", "clusterpolicy", "cluster-policy", "--cascade=foreground")
    owner.kubectl("delete", "--filename=-", told=yaml.safe_dump_all(page("policy")))
    owner.kubectl("label", "nodes", "--all", *(f"nvidia.com/{label}-" for label in OF_OPERATOR))


def show_labels(owner: Owner) -> None:
    """What RULE_POD_LABELS_MISSING says to do."""
    stack = {**page("stack")[0], "kube-state-metrics": {"metricLabelsAllowlist": ["pods=[app]"]}}
    owner.release("monitoring", "kube-prometheus-stack", "observability", stack)


def read_faster(owner: Owner) -> None:
    """What docs/clusters/gpu-operator.md has in the values of the operator's chart."""
    words = ("-n", "gpu-operator", "set", "env", "daemonset/nvidia-dcgm-exporter", "DCGM_EXPORTER_INTERVAL=1000")
    owner.kubectl(*words)
    owner.kubectl("-n", "gpu-operator", "rollout", "status", "daemonset/nvidia-dcgm-exporter")
    faster = [{"op": "replace", "path": "/spec/endpoints/0/interval", "value": "2s"}]
    patch = ("patch", "servicemonitor", "nvidia-dcgm-exporter", "--type=json", "-p", json.dumps(faster))
    owner.kubectl("-n", "gpu-operator", *patch)


OF_MANIFEST = {"kind": "DaemonSet", "name": "kube-system/nvidia-device-plugin-daemonset", "origin": "manifest"}
CASES = {
    "joined": Case(
        plugin=OF_MANIFEST,
        exporter={"kind": "DaemonSet", "name": "gpus/dcgm-exporter", "origin": "manifest"},
        adapter="metrics-prometheus-adapter",
        apply=("plugin", "joined"),
        releases={"metrics": ("prometheus-adapter", "adapters", "adapter-default")},
        says={"RULE_POD_LABELS_MISSING", "METRIC_NOT_LISTED", "RULE_JOINS_POD_ALONE"},
        still={"RULE_JOINS_POD_ALONE"},
        mends=show_labels,
        load=1.0,
        replicas=2,
    ),
    "raw": Case(
        plugin=OF_MANIFEST,
        exporter={"kind": "DaemonSet", "name": "ml/dcgm-exporter", "origin": "helm"},
        adapter="metrics-prometheus-adapter",
        apply=("plugin",),
        releases={
            "dcgm-exporter": ("dcgm-exporter", "ml", "exporter"),
            "metrics": ("prometheus-adapter", "adapters", "adapter-default"),
        },
        says={"HPA_METRIC_OF_ALL_GPUS"},
        still={"HPA_METRIC_OF_ALL_GPUS"},
        load=0.4,  # over 0.6 the sum of all GPUs drives this recipe to its maximum
        replicas=1,
    ),
    "operator": Case(
        plugin={
            "kind": "DaemonSet",
            "name": "gpu-operator/nvidia-device-plugin-daemonset",
            "origin": "gpu-operator",
        },
        exporter={"kind": "DaemonSet", "name": "gpu-operator/nvidia-dcgm-exporter", "origin": "gpu-operator"},
        adapter="averages-prometheus-adapter",
        releases={"averages": ("prometheus-adapter", "adapters", "adapter-average")},
        mends=read_faster,
        load=1.0,
        replicas=2,
        before=operator,
        after=no_operator,
    ),
}


@pytest.fixture(scope="module", params=CASES)
def site(owner: Owner, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Tests of a site go in the order in which they are written: each leaves it to the next."""
    owner.release("monitoring", "kube-prometheus-stack", "observability", page("stack")[0])
    site = Site(request.param, CASES[request.param], owner)
    site.furnish()
    yield site
    site.clear()


def test_what_there_is_is_found_by_whatever_name(site: Site) -> None:
    found = site.module("gpu_cluster_info")["result"]
    components = found["components"]
    (prometheus,) = components["prometheus"]
    foreign = {"owned": False, "release": ""}
    exporter_release = "ml/dcgm-exporter" if site.case.exporter["origin"] == "helm" else ""

    assert found["not_looked_at"] == {}
    assert components["device_plugin"] == [{**site.case.plugin, **foreign}]
    assert components["exporter"] == [{**site.case.exporter, **foreign, "release": exporter_release}]
    assert (prometheus["namespace"], prometheus["service"], prometheus["port"]) == ("observability", PROMETHEUS, 9090)
    assert prometheus["rule_labels"] == prometheus["monitor_labels"] == {"release": "monitoring"}
    assert prometheus["owned"] is False
    adapter = components["metrics_apis"]["custom.metrics.k8s.io"]
    assert (adapter["service"], adapter["owned"]) == (f"adapters/{site.case.adapter}", False)


def test_the_doctor_says_what_is_wrong_and_its_owner_mends_it(site: Site) -> None:
    until(lambda: site.findings()[1] == site.case.says, f"the doctor says {site.case.says}")
    site.case.mends(site.owner)
    until(site.rests, f"the HPA has its metric, and {site.case.replicas} replicas")
    until(lambda: site.findings()[1] == site.case.still, f"the doctor says {site.case.still or 'nothing'}")


def test_it_is_taken_over_and_no_replica_moves(site: Site) -> None:
    site.allow_our_metrics()
    site.before = site.owner.dump()

    with site.watched() as replicas:
        refused = site.play("autoscaling")
        assert (refused.returncode, "adopt: true" in refused.stdout) == (2, True)
        assert differing(site.before, site.owner.dump()) == set()
        site.write(adopt=True)
        assert site.play("autoscaling").returncode == 0
        until(site.rests, "our HPA is content")

    assert replicas == {site.case.replicas}
    assert differing(site.before, site.owner.dump()) - {RULEFILES} == OURS


def test_a_load_step_scales_within_the_time_that_was_promised(site: Site) -> None:
    """Up and down again, by `python -m lab.load`, which ends with 1 beyond that time or at a replica too many."""
    (prometheus,) = site.module("gpu_cluster_info")["result"]["components"]["prometheus"]
    where = {name: prometheus[name] for name in ("namespace", "service", "port", "rule_labels")}
    seen = site.module("gpu_autoscaler_info", autoscalers=[site.autoscaler], prometheus=where)
    budget = seen["result"]["autoscalers"][0]["budget"]
    assert "assumed" not in budget["sources"].values()
    periods = (budget[f"{name}_s"] for name in ("collect", "scrape", "evaluate", "sync"))
    words = ["-m", "lab.load", "--kubeconfig", ADMIN, "--namespace", "ml", "--hpa", "chat", "--hold", "15"]
    words += ["--prometheus", f"observability/{PROMETHEUS}:9090", "--periods", ",".join(map(str, periods))]
    words += ["--high", "1.5", "--out", ROOT / "build" / "existing" / site.name]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0


def test_the_doctor_has_nothing_to_say_of_what_is_ours(site: Site) -> None:
    site.demand(site.case.load)
    until(lambda: site.findings() == (0, set()), "the doctor is content")


def test_uninstall_leaves_what_others_made_to_the_byte(site: Site) -> None:
    """All but the HPA that was adopted."""
    known = {"kubegpu_kubeconfig": str(ADMIN), "kubegpu_context": ""}
    done = site.play("uninstall", kubegpu_cluster_name="a", kubegpu_confirm="a", **known)
    assert done.returncode == 0

    until(lambda: RULEFILES not in differing(site.before, site.owner.dump()), "Prometheus has its own rules alone")
    after = site.owner.dump()
    assert differing(site.before, after) == {HPA}
    assert HPA not in after
