"""Which files have to be written, by what find has seen."""

from __future__ import annotations

from hashlib import sha1

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import FilterModule

differing_files = FilterModule().filters()["differing_files"]

WANTED = {"path": "/etc/a", "content": "one\n", "mode": "0600"}
SEEN = {"path": "/etc/a", "checksum": sha1(b"one\n").hexdigest(), "mode": "0600", "uid": 0, "gid": 0}


def test_a_file_as_it_should_be_is_left_alone() -> None:
    assert differing_files([WANTED], [SEEN]) == []


@pytest.mark.parametrize(
    "found",
    [[], [{**SEEN, "path": "/etc/b"}], *([{**SEEN, key: other}] for key, other in
     [("checksum", "0" * 40), ("mode", "0644"), ("uid", 1000), ("gid", 1000)])],
)  # fmt: skip
def test_any_other_is_written(found: list[dict[str, object]]) -> None:
    assert differing_files([WANTED], found) == [WANTED]
