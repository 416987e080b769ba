"""What pulls the images of workloads ahead: DaemonSets that the API server accepts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import FilterModule

image_pullers = FilterModule().filters()["image_pullers"]

# Cut at 63 characters, the first two names end with a dash or a dot.
DASH = "meta-llama-3-1-70b-instruct-awq-int4-eu-central-predictor"
DOT = "meta-llama-3-1-70b-instruct-awq-int4-eu-central.predictor-of-chat"
AFFINITY = {"nodeAffinity": {}}
NAMES = ["chat", DASH, DOT, "x" * 63]


def pullers(*names: str, kind: str = "Deployment", **pod_spec: Any) -> list[dict[str, Any]]:
    pod = {"containers": [{"name": "main", "image": "service"}], **pod_spec}
    targets = [
        {"kind": kind, "metadata": {"name": name, "namespace": "ml"}, "spec": {"template": {"spec": pod}}}
        for name in names
    ]
    return image_pullers(targets, "pause", AFFINITY)


def test_each_image_is_a_volume_of_a_pause_container() -> None:
    containers = [{"image": "service"}, {"image": "proxy"}, {"image": "service"}]
    (puller,) = pullers("chat", initContainers=[{"image": "weights"}], containers=containers, nodeSelector={"a": "b"})
    pod = puller["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert [volume["image"]["reference"] for volume in pod["volumes"]] == ["weights", "service", "proxy"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/images/1", "/images/2", "/images/3"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]
    assert (container["image"], pod["affinity"], pod["nodeSelector"]) == ("pause", AFFINITY, {"a": "b"})


def test_a_pod_is_kept_where_the_workload_may_run() -> None:
    taint = {"key": "dedicated", "operator": "Exists"}
    (puller,) = pullers("chat", tolerations=[taint])
    assert [row["key"] for row in puller["spec"]["template"]["spec"]["tolerations"]] == ["dedicated", "nvidia.com/gpu"]


def test_what_has_no_pod_template_has_no_puller() -> None:
    """An object of another kind, or one that is asked for twice."""
    target = {"kind": "LeaderWorkerSet", "metadata": {"name": "chat", "namespace": "ml"}, "spec": {"replicas": 1}}
    assert image_pullers([target], "pause", {}) == []
    assert len(pullers("chat", "chat")) == 1


def test_images_are_pulled_with_the_secrets_of_the_workloads_account() -> None:
    """The API server gives a pod the pull secrets of its ServiceAccount; those of `default` open another registry."""
    (puller,) = pullers("chat", serviceAccountName="models")
    assert puller["spec"]["template"]["spec"]["serviceAccountName"] == "models"
    assert puller["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    (puller,) = pullers("chat")
    assert "serviceAccountName" not in puller["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", NAMES)
def test_a_long_name_is_cut_to_one_that_is_valid(name: str) -> None:
    (puller,) = pullers(name)
    (label,) = puller["spec"]["selector"]["matchLabels"].values()

    part = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert re.fullmatch(rf"{part}([.]{part})*", puller["metadata"]["name"])
    assert re.fullmatch("[a-z0-9]([-a-z0-9_.]*[a-z0-9])?", label)
    assert max(len(puller["metadata"]["name"]), len(label)) <= 63


def test_a_short_name_stays() -> None:
    (puller,) = pullers("chat")
    assert puller["metadata"]["name"] == "kubegpu-images-deployment-chat"
    assert puller["spec"]["selector"]["matchLabels"] == {"kubegpu.autoscale/images-of": "deployment-chat"}


def test_long_names_that_begin_alike_stay_apart() -> None:
    made = pullers(DASH + "-a", DASH + "-b")
    assert len({puller["metadata"]["name"] for puller in made}) == len(made)
    assert len({str(puller["spec"]["selector"]) for puller in made}) == len(made)


def test_a_workload_that_becomes_another_kind_gets_another_daemon_set() -> None:
    """A Deployment becomes a Rollout of its name: nobody can change the selector of what is there."""
    [before], [after] = pullers("chat"), pullers("chat", kind="Rollout")
    assert before["spec"]["selector"] != after["spec"]["selector"]
    assert before["metadata"]["name"] != after["metadata"]["name"]
