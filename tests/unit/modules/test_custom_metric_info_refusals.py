from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.modules.custom_metric_info import (
    ARGUMENTS,
    DOCUMENTATION,
    EXAMPLES,
    condition,
)
from collection import ROOT

MODULE = "ansible_collections.kubegpu.autoscale.plugins.modules.custom_metric_info"
WITHOUT_JMESPATH = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
sys.modules["jmespath"] = None
from collection import install
install()
import {MODULE}
"""


def test_documentation_says_what_the_argument_spec_says() -> None:
    def shape(options, inner):
        return {
            name: (
                option["type"],
                option.get("default"),
                option.get("choices"),
                option.get("elements"),
                option.get("required", False),
                shape(option.get(inner, {}), inner),
            )
            for name, option in options.items()
        }

    documented = yaml.safe_load(DOCUMENTATION)["options"]
    assert shape(documented, "suboptions") == shape(ARGUMENTS, "options")


def test_conditions_of_the_examples_compile() -> None:
    tasks = [task.get("kubegpu.autoscale.custom_metric_info", {}) for task in yaml.safe_load(EXAMPLES)]
    conditions = [condition(task["until"]) for task in tasks if "until" in task]
    assert len(conditions) == 2


def test_without_jmespath_only_until_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_JMESPATH], check=True)
    monkeypatch.setitem(sys.modules, "jmespath", None)
    with pytest.raises(HopError, match=r"Failed to import the required Python library \(jmespath\)"):
        condition("result.samples")
