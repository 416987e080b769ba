"""Releases that this collection has not installed, and what a role says instead of changing them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import release_conflict

CHART = {"release": "exporter", "namespace": "monitoring", "adopt": "dcgm_exporter_adopt"}
THEIRS = {
    "status": "deployed",
    "chart": "dcgm-exporter-4.0.0",
    "owned": False,
    "made_by": "is not managed by this collection",
    "begun": False,
    "changes": ["chart: 4.0.0 -> 4.8.2", "values: a"],
}
FIRST = (
    "helm -> exporter: release monitoring/exporter (dcgm-exporter-4.0.0, {status}) is not managed by this collection."
    " Nothing was changed. "
)


@pytest.mark.parametrize(
    ("seen", "adopt"),
    [
        ({"owned": True}, False),
        ({"status": ""}, False),
        ({}, True),
        ({}, "true"),
        ({"begun": True, "status": "failed"}, True),
    ],
    ids=["ours", "none", "adopted", "adopted by text", "adopted half"],
)
def test_a_role_goes_on(seen: dict[str, Any], adopt: Any) -> None:
    assert release_conflict(THEIRS | seen, CHART, adopt) == ""


@pytest.mark.parametrize(
    ("seen", "adopt", "following"),
    [
        (
            {},
            "false",
            "The role would change: chart: 4.0.0 -> 4.8.2; values: a."
            " Next: use it as it is (docs/existing-clusters.md), give the role another release or namespace,"
            " or adopt it with those changes:"
            " `-e dcgm_exporter_adopt=true`.",
        ),
        (
            {"status": "pending-upgrade"},
            True,
            "Next: repair it first, `helm --namespace monitoring history exporter`.",
        ),
        (
            {"begun": True},
            False,
            "Adopting it was interrupted. Next: go back, `helm --namespace monitoring rollback exporter`, or continue: "
            "`-e dcgm_exporter_adopt=true`.",
        ),
    ],
    ids=["deployed", "pending", "interrupted"],
)
def test_the_error_says_what_is_next(seen: dict[str, Any], adopt: Any, following: str) -> None:
    found = THEIRS | seen
    assert release_conflict(found, CHART, adopt) == FIRST.format(status=found["status"]) + following


def test_a_release_without_an_option_is_never_adopted() -> None:
    said = release_conflict(THEIRS | {"changes": []}, CHART | {"adopt": ""})
    assert said.endswith("The role would change: nothing. Next: use it as it is (docs/existing-clusters.md),"
                         " give the role another release or namespace.")  # fmt: skip
