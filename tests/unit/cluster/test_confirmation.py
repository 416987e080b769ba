"""What removes nodes, drivers or releases is confirmed by the name of the cluster, and says what would go."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import FilterModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.confirmation import command

confirmation = FilterModule().filters()["confirmation"]
REQUEST: dict[str, Any] = {
    "what": "the GPU driver",
    "hosts": ["gpu1", "gpu2"],
    "recorded": ["prod"],
    "candidates": ["inventory"],
    "settings": {"nvidia_driver_state": "absent"},
}


@pytest.mark.parametrize(("given", "is_confirmed"), [("", False), ("staging", False), ("true", False), ("prod", True)])
def test_the_name_confirms_and_nothing_else(given: str, is_confirmed: bool) -> None:
    assert (confirmation(REQUEST, given)["refused"] == "") == is_confirmed


def test_a_refusal_says_what_would_go_and_how_to_confirm_it() -> None:
    said = confirmation({**REQUEST, "at": "https://192.0.2.1:6443"}, "staging")["refused"]

    assert "kubegpu_confirm is staging, which is another cluster." in said
    assert "the GPU driver: cluster prod at https://192.0.2.1:6443, servers gpu1, gpu2." in said
    assert "Nothing was changed." in said
    assert "-e nvidia_driver_state=absent -e kubegpu_confirm=prod`" in said


def test_all_that_leaves_is_said_to_be_all() -> None:
    assert "all of the cluster and its data" in confirmation({**REQUEST, "whole": True})["prompt"]


def test_servers_of_two_clusters_are_not_cleared_by_the_name_of_one() -> None:
    said = confirmation({**REQUEST, "recorded": ["prod", "staging"]}, "prod")["refused"]

    assert "several clusters: prod, staging (servers gpu1, gpu2)" in said


def test_two_clusters_of_one_name_are_two() -> None:
    said = confirmation({**REQUEST, "uids": ["1", "", "2"]}, "prod")["refused"]

    assert "several clusters: 1, 2 (servers gpu1, gpu2)" in said
    assert confirmation({**REQUEST, "uids": ["1", "", "1"]}, "prod")["refused"] == ""


def test_a_cluster_without_a_record_has_the_name_of_the_inventory() -> None:
    request = {**REQUEST, "recorded": [], "candidates": ["", "kubernetes-admin@kubernetes", "/srv/prod/hosts.yml"]}

    assert confirmation(request, "prod")["refused"] == ""


def test_the_command_is_that_of_the_run_and_holds_for_a_shell() -> None:
    said = command(["kubegpu.autoscale.cluster"], ["my servers"], "gpu2", {"kubernetes_state": "absent"}, "my cluster")

    assert shlex.split(said) == [
        *("ansible-playbook", "-i", "my servers", "kubegpu.autoscale.cluster", "--limit", "gpu2"),
        *("-e", "kubernetes_state=absent", "-e", "kubegpu_confirm=my cluster"),
    ]
