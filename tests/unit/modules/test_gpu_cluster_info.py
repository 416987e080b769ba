"""Which cluster a kubeconfig means, and when that is not said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kubeconfig import place_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.modules import gpu_autoscaler_info, gpu_cluster_info
from kubeconfigs import production


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


WRONG = {
    "no YAML": ("token: a: SECRET", "", "is not YAML: line 1: mapping values are not allowed here"),
    "an empty file": ("", "", "is empty"),
    "no context": (json.dumps(production()), "gone", "has no context gone"),
    "a context without its cluster": (
        json.dumps({**production(), "clusters": []}),
        "production",
        "names the cluster eks, which the file does not have",
    ),
    "a context without a cluster": (
        json.dumps({**production(), "contexts": [{"name": "production", "context": {"user": "chris"}}]}),
        "",
        "names no cluster",
    ),
    "a context without its user": (json.dumps({**production(), "users": []}), "", "which the file does not have"),
    "an empty current context": (
        json.dumps({**production(), "current-context": ""}),
        "",
        "selects no context: its current-context is empty",
    ),
    "no current context": (
        json.dumps({name: part for name, part in production().items() if name != "current-context"}),
        "",
        "selects no context: its current-context is empty",
    ),
    "another file": ("[SECRET]", "", "is not a kubeconfig: it is not a mapping"),
    "no file": (None, "", "there is no file"),
}


@pytest.mark.parametrize("module", [gpu_cluster_info, gpu_autoscaler_info], ids=["first", "others"])
@pytest.mark.parametrize(("text", "context", "seen"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_kubeconfig_is_one_sentence_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], module: Any, text: str | None, context: str, seen: str
) -> None:
    """Modules of kubernetes.core hide the path, and Python's client gives the words of its parser."""
    if text is not None:
        (tmp_path / "config").write_text(text)
    given = {"kubeconfig": str(tmp_path / "config"), "context": context or None}
    more = {"autoscalers": [{"name": "chat"}]} if module is gpu_autoscaler_info else {}
    with pytest.raises(SystemExit), patch_module_args({**given, **more}):
        module.main()
    said = capsys.readouterr().out
    message = json.loads(said)["msg"]
    assert message.startswith("API server: ")
    assert f"{tmp_path}/config" in message
    assert seen in message
    assert "\n  fix: " in message
    assert "********" not in said
    assert "SECRET" not in said


def test_a_kubeconfig_as_a_mapping_is_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"kubeconfig": {**production(), "current-context": "gone"}}
    with pytest.raises(SystemExit), patch_module_args({**given, "autoscalers": [{"name": "chat"}]}):
        gpu_autoscaler_info.main()
    assert "THE-ONLY-TOKEN" not in capsys.readouterr().out


def test_several_files_in_one_variable_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HopError) as caught:
        place_of({"kubeconfig": f"{tmp_path}/a:{tmp_path}/b", "context": None, "host": None})
    assert "name one file" in caught.value.fix
