"""TOML that Python's own reader reads back as it was."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.toml import to_toml
from hypothesis import given
from hypothesis import strategies as st

_text = st.text(st.characters(exclude_categories=["Cs"]))
_scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | _text
_tables = st.recursive(
    st.dictionaries(_text, _scalars | st.lists(_scalars)), lambda inner: st.dictionaries(_text, inner | _scalars)
)


@given(_tables)
def test_what_is_written_is_read_back(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_a_drop_in_of_containerd_reads_well() -> None:
    assert to_toml({"version": 3, "plugins": {"io.containerd.cri.v1.images": {"pinned_images": {"sandbox": "a"}}}}) == (
        'version = 3\n\n[plugins."io.containerd.cri.v1.images".pinned_images]\nsandbox = "a"\n'
    )


def test_a_value_that_toml_has_no_word_for_is_refused() -> None:
    with pytest.raises(TypeError, match="None"):
        to_toml({"key": None})
