"""One import more in a configuration that somebody else wrote, and nothing else."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.toml import (
    from_toml,
    to_toml,
    with_import,
    without_import,
)
from hypothesis import given
from hypothesis import strategies as st

OURS = "/etc/containerd/conf.d/*.toml"
COMMENTED = """# by hand

version = 2
imports = [  # two of them
    "/opt/a.toml",
    '/opt/b/*.toml',
]

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "local/pause:1"
"""

_text = st.text(st.characters(exclude_categories=["Cs"]))
_settings = st.fixed_dictionaries(
    {"version": st.integers(0, 9)},
    optional={
        "imports": st.lists(_text),
        "root": _text,
        "plugins": st.dictionaries(_text, st.just({"imports": ["x"]})),
    },
)


@given(_settings)
def test_only_the_import_is_added_and_it_can_be_taken_back(settings: dict[str, Any]) -> None:
    before = to_toml(settings)

    after = with_import(before, OURS)

    assert tomllib.loads(after) == settings | {"imports": [OURS, *settings.get("imports", [])]}
    assert without_import(after, OURS) == before


@given(_settings)
def test_a_second_time_changes_nothing(settings: dict[str, Any]) -> None:
    once = with_import(to_toml(settings), OURS)

    assert with_import(once, OURS) == once


def test_comments_and_line_breaks_stay() -> None:
    after = with_import(COMMENTED, OURS)

    assert [line for line in after.splitlines() if line not in COMMENTED.splitlines()] == [
        f'imports = ["{OURS}", # kubegpu.autoscale',
        "  # two of them",
    ]
    assert from_toml(after)["imports"] == [OURS, "/opt/a.toml", "/opt/b/*.toml"]
    assert without_import(after, OURS) == COMMENTED


@pytest.mark.parametrize("theirs", [f'imports = ["{OURS}"]\n', "imports = ['conf.d/*.toml']\n"])
def test_an_import_that_is_there_is_left_and_never_taken(theirs: str) -> None:
    assert with_import(theirs, OURS) == theirs
    assert without_import(theirs, OURS) == theirs


@pytest.mark.parametrize(
    "document",
    [
        'imports = "/opt/a.toml"\n',
        '"imports" = ["/opt/a.toml"]\n',
        'note = """\nimports = [\n"""\n"imports" = []\n',
        "version = \n",
    ],
)
def test_what_cannot_be_extended_safely_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be extended|Invalid value"):
        with_import(document, OURS)
