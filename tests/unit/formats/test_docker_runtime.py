"""Docker's daemon.json with one runtime more, and everything of others as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.docker import (
    forgetting,
    with_runtime,
    without_runtime,
)
from hypothesis import given
from hypothesis import strategies as st

OURS = ("nvidia", "/usr/bin/nvidia-container-runtime")
BY_HAND = '{\n  "log-driver": "journald",\n  "runtimes": {\n    "kata": {\n      "path": "/opt/kata"\n    }\n  }\n}\n'

_name = st.text(max_size=9).filter(lambda name: name != "nvidia")
_settings = st.fixed_dictionaries(
    {"log-driver": _name},
    optional={
        "runtimes": st.dictionaries(_name, st.fixed_dictionaries({"path": _name}), min_size=1),
        "registry-mirrors": st.lists(_name),
    },
)


@given(_settings, st.booleans(), st.sampled_from([2, 4, "\t"]))
def test_it_comes_and_goes_and_the_rest_stays(settings: dict[str, Any], default: bool, indent: int | str) -> None:
    before = json.dumps(settings, indent=indent, ensure_ascii=False) + "\n"

    there = with_runtime(before, *OURS, default)

    assert json.loads(there)["runtimes"]["nvidia"]["path"] == OURS[1]
    assert json.loads(there).get("default-runtime") == ("nvidia" if default else None)
    assert with_runtime(there, *OURS, default) == there
    assert without_runtime(there, *OURS) == before


def test_a_file_that_held_nothing_else_is_empty_again() -> None:
    assert without_runtime(with_runtime("", *OURS, default=True), *OURS) == ""


def test_the_default_is_given_up_when_it_is_not_asked_for_any_more() -> None:
    asked = with_runtime(BY_HAND, *OURS, default=True)

    assert with_runtime(asked, *OURS) == with_runtime(BY_HAND, *OURS)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        # Docker's reload takes over what is named, and nothing else.
        (with_runtime("", *OURS, default=True), "", {"default-runtime": "runc", "runtimes": {}}),
        (with_runtime("", *OURS), "", {"runtimes": {}}),
        (with_runtime(BY_HAND, *OURS), BY_HAND, {}),
        (with_runtime(BY_HAND, *OURS, default=True), BY_HAND, {"default-runtime": "runc"}),
        (BY_HAND, with_runtime(BY_HAND, *OURS, default=True), {}),
    ],
)
def test_what_goes_is_said_to_a_docker_that_runs(before: str, after: str, told: dict[str, Any]) -> None:
    said = forgetting(after, before)

    assert json.loads(said or "{}") == json.loads(after or "{}") | told
    assert (said == after) == (not told)


@pytest.mark.parametrize(
    "runtime",
    [
        {"path": "nvidia-container-runtime"},
        {"path": "/usr/bin/nvidia-container-runtime", "runtimeArgs": []},  # as nvidia-docker2 wrote it
    ],
)
def test_somebody_s_runtime_of_that_name_is_theirs(runtime: dict[str, Any]) -> None:
    theirs = json.dumps({"default-runtime": "nvidia", "runtimes": {"nvidia": runtime}})

    assert with_runtime(theirs, *OURS) == theirs
    assert without_runtime(theirs, *OURS) == theirs


def test_somebody_s_default_is_not_replaced() -> None:
    with pytest.raises(ValueError, match="its default-runtime is kata"):
        with_runtime('{"default-runtime": "kata"}', *OURS, default=True)

    assert json.loads(with_runtime('{"default-runtime": "kata"}', *OURS))["default-runtime"] == "kata"


@pytest.mark.parametrize("document", ["{", '{"a": 1,}', "[]", '{"runtimes": []}'])
def test_what_is_no_settings_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match=r"not an object with settings|Expecting|Illegal trailing"):
        with_runtime(document, *OURS)
    with pytest.raises(ValueError, match=r"not an object with settings|Expecting|Illegal trailing"):
        without_runtime(document, *OURS)
