"""The names of what pulls images ahead, which the API server has to take."""

from __future__ import annotations

import re
from typing import Any

import pytest
from role_values import RoleValues

# Cut at 63 characters, the first two names end with a dash or a dot.
DASH = "meta-llama-3-1-70b-instruct-awq-int4-eu-central-predictor"
DOT = "meta-llama-3-1-70b-instruct-awq-int4-eu-central.predictor-of-chat"
NAMES = ["chat", DASH, DOT, "x" * 63]


def pullers(*names: str, kind: str = "Deployment", **pod_spec: Any) -> list[dict[str, Any]]:
    pod = {"containers": [{"name": "main", "image": "service"}], **pod_spec}
    targets = [
        {"kind": kind, "metadata": {"name": name, "namespace": "ml"}, "spec": {"template": {"spec": pod}}}
        for name in names
    ]
    found: list[dict[str, Any]] = RoleValues(
        "gpu_autoscaling", {}, {"__gpu_autoscaling_seen": {"result": {"objects": [targets]}}, "kubegpu_cluster": {}}
    )["__gpu_autoscaling_pullers"]
    return found


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
