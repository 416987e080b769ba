"""Which cluster a kubeconfig means, and when that is not said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kubeconfig import place_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError


def options(tmp_path: Path, *contexts: str, current: str = "", **more: Any) -> dict[str, Any]:
    path = tmp_path / "config"
    path.write_text(
        json.dumps(
            {
                "current-context": current,
                "contexts": [{"name": name, "context": {"cluster": f"of-{name}"}} for name in contexts],
                "clusters": [
                    {"name": f"of-{name}", "cluster": {"server": f"https://{name}:6443"}} for name in contexts
                ],
            }
        )
    )
    return {"kubeconfig": str(path), "context": None, "host": None, **more}


def test_the_only_one_is_meant(tmp_path: Path) -> None:
    assert place_of(options(tmp_path, "lab", current="lab")) == ("lab", "https://lab:6443")


def test_the_one_that_is_named_is_meant(tmp_path: Path) -> None:
    place = place_of(options(tmp_path, "lab", "production", current="production", context="lab"))
    assert place == ("lab", "https://lab:6443")


@pytest.mark.parametrize(
    ("contexts", "more", "seen"),
    [
        (("lab", "production"), {"current": "production"}, "has 2 contexts: lab, production"),
        (("lab",), {"context": "production"}, "has no context production"),
    ],
)
def test_one_that_may_be_another_is_refused(
    tmp_path: Path, contexts: tuple[str, ...], more: dict[str, Any], seen: str
) -> None:
    with pytest.raises(HopError) as caught:
        place_of(options(tmp_path, *contexts, **more))
    assert seen in caught.value.seen


def test_several_files_in_one_variable_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HopError) as caught:
        place_of({"kubeconfig": f"{tmp_path}/a:{tmp_path}/b", "context": None, "host": None})
    assert "name one file" in caught.value.fix


def test_a_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("contexts: [")
    with pytest.raises(HopError, match=f"the kubeconfig {path} is no YAML: while parsing"):
        place_of({"kubeconfig": str(path), "context": None, "host": None})
