"""Label selectors, against what the API server makes of them."""

from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.label_selectors import (
    format_selector,
    labels_match,
    labels_that_match,
    parse_selector,
)

LABELS = {"app.kubernetes.io/name": "chat", "tier": "a"}
CASES = {
    "app.kubernetes.io/name in (chat)": True,
    "app.kubernetes.io/name in (other, chat)": True,
    "app.kubernetes.io/name notin (other)": True,
    "app.kubernetes.io/name notin (chat)": False,
    "tier in (a,b),app.kubernetes.io/name=chat": True,
    "tier==b": False,
    "tier != b": True,
    "example.com/missing!=x": True,
    "example.com/missing notin (x)": True,
    "example.com/missing": False,
    "!example.com/missing": True,
    "tier": True,
    "!tier": False,
}


@pytest.mark.parametrize(("text", "matches"), CASES.items())
def test_the_text_of_a_scale(text: str, matches: bool) -> None:
    assert labels_match(parse_selector(text), LABELS) is matches


def test_an_empty_text_selects_nothing() -> None:
    assert parse_selector("") is None
    assert not labels_match(None, LABELS)


@pytest.mark.parametrize("text", CASES)
def test_a_selector_that_is_written_and_read_again_is_the_same(text: str) -> None:
    selector = parse_selector(text)
    assert selector is not None
    assert parse_selector(format_selector(selector)) == selector


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ({}, {}),
        ({"matchLabels": {"role": "rules"}}, {"role": "rules"}),
        ({"matchExpressions": [{"key": "role", "operator": "In", "values": ["rules", "alerts"]}]}, {"role": "rules"}),
        ({"matchExpressions": [{"key": "rules", "operator": "Exists"}]}, {"rules": "true"}),
        ({"matchExpressions": [{"key": "role", "operator": "NotIn", "values": ["old"]}]}, {}),
        (
            {
                "matchLabels": {"team": "ml"},
                "matchExpressions": [
                    {"key": "team", "operator": "In", "values": ["web", "ml"]},
                    {"key": "draft", "operator": "DoesNotExist"},
                ],
            },
            {"team": "ml"},
        ),
        # Nothing has both.
        (
            {
                "matchLabels": {"team": "ml"},
                "matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["ml"]}],
            },
            {},
        ),
    ],
)
def test_labels_are_chosen_so_that_a_selector_selects(selector: dict[str, object], labels: dict[str, str]) -> None:
    assert labels_that_match(selector) == labels
