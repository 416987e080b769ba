"""A secret in each option of each module that can hold one: no output shows it, and no program gets it as an argument.

The options come from the argument specs, so that a new one is tested without a word here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from collection import ROOT, install
from planted import PLANT, each_holder

install()
PACKAGE = "ansible_collections.kubegpu.autoscale.plugins.modules."
# gpu_facts has PCI addresses, and brings a server nothing that it does not need.
# Of an action the module of that name is only the documentation.
ACTIONS = {path.stem for path in (ROOT / "plugins" / "action").glob("*.py")}
MODULES = sorted({path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")} - {"gpu_facts", *ACTIONS})
# Without a cluster: what a module does before it asks one, and what it says of its options, is asked here.
NOWHERE = {"kubeconfig": "/nowhere/kubeconfig"}
# What a module asks for beside what is required of itself.
BESIDE: dict[str, dict[str, Any]] = {
    "chart_release": {"chart_name": "x", "chart_version": "1"},
    "custom_metric_info": {"namespace": "x"},
    "objects": {"part_of": "x", "kinds": []},
    "gpu_proof": {"image": "x", "scripts": {"cuda_proof.py": ""}},
}
FILL: dict[str, Any] = {"bool": False, "int": 1, "float": 1.0, "dict": {}, "list": [], "path": "/nowhere", "str": "x"}


class SpecRead(Exception):
    pass


def spec_of(module: str) -> Mapping[str, Any]:
    """The argument spec that a module hands to Ansible."""
    found: dict[str, Any] = {}

    def read(_self: AnsibleModule, argument_spec: dict[str, Any], **_more: Any) -> None:
        found.update(argument_spec)
        raise SpecRead

    main = import_module(PACKAGE + module).main
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnsibleModule, "__init__", read)
        with pytest.raises(SpecRead):
            main()
    return found


def fill(specs: Mapping[str, Any]) -> dict[str, Any]:
    """The least that a module takes."""
    return {name: _least(spec) for name, spec in specs.items() if spec.get("required")}


def _least(spec: Mapping[str, Any]) -> Any:
    if "choices" in spec:
        return spec["choices"][0]
    kind = spec.get("type", "str")
    if "options" in spec:
        return [fill(spec["options"])] if kind == "list" else fill(spec["options"])
    return FILL.get(kind, "x")


def plants(specs: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each way to hide a secret in one option: its name, and the options of a module with it."""
    for name, spec in specs.items():
        for inner, value in _values(name, spec):
            yield inner, {**fill(specs), name: value}


def _values(name: str, spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    kind = spec.get("type", "str")
    if "choices" in spec or kind in ("bool", "int", "float"):
        return
    if "options" in spec:
        for inner, options in plants(spec["options"]):
            yield f"{name}.{inner}", [options] if kind == "list" else options
        return
    if spec.get("no_log") and name != "kubeconfig":  # as text it is a path, which errors have to name
        yield name, PLANT
    for holder, value in each_holder(kind, spec.get("elements", "dict")):
        yield f"{name} ({holder})", value


# Names of packages are arguments of dpkg-query, and hold no secret.
CASES = [
    (module, name, options)
    for module in MODULES
    for name, options in plants(spec_of(module))
    if not name.startswith("apt_offer.repositories.packages")
]


def test_each_module_is_asked() -> None:
    assert {module for module, _name, _options in CASES} == set(MODULES)
    options = {(module, name.partition(" (")[0]) for module, name, _options in CASES}
    assert len(options) > 250
    assert {("objects", "objects"), ("chart_release", "release_values"), ("gpu_doctor", "prometheus.url")} <= options


@pytest.mark.parametrize("rejected", [{}, {"unknown": 1}], ids=["accepted", "rejected"])
@pytest.mark.parametrize("module", MODULES)
def test_no_option_of_a_module_shows_a_secret(
    module: str,
    rejected: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """-vvv shows the options, also of a module that rejects them, and a failure its message and traceback."""
    programs: list[str] = []
    start = subprocess.Popen.__init__

    def watched(self: Any, command: Any, *words: Any, **options: Any) -> None:
        programs.append(f"{command} {options.get('env')}")
        start(self, command, *words, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", watched)
    main = import_module(PACKAGE + module).main
    is_asked_for_a_cluster = "kubeconfig" in spec_of(module)
    shown = []
    for _module, name, options in (case for case in CASES if case[0] == module):
        beside = {**(NOWHERE if is_asked_for_a_cluster else {}), **BESIDE.get(module, {})}
        given = {**beside, **options, **rejected, "_ansible_diff": True}
        with patch_module_args(given), pytest.raises(SystemExit):
            main()
        printed = capsys.readouterr()
        assert printed.out.startswith("\n{") or printed.out.startswith("{")
        shown += [name] * (PLANT in printed.out + printed.err)
    assert shown == []
    assert [program for program in programs if PLANT in program] == []
