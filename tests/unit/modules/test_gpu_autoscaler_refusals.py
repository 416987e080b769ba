"""Options that no autoscaler can have end the module before it asks the API server for anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubegpu.autoscale.plugins.modules import gpu_autoscaler

CHAT = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4}
NOWHERE = {"host": "https://127.0.0.1:9", "api_key": "none"}


def failure(capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
    with pytest.raises(SystemExit), patch_module_args({**NOWHERE, **options}):
        gpu_autoscaler.main()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"]
    return result


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"min_replicas": float("inf")}, "autoscalers[1].min_replicas is inf"),
        ({"target": 1}, "autoscalers[1].target is 1, not a mapping"),
        ({"max_replicas": 1.9}, "autoscalers[1].max_replicas is 1.9"),
        ({"extra_metrics": [{"metric": "gpu_util", "target_values": ["gpu_util"]}]}, "target_values is ['gpu_util']"),
        ({"scale_up": {"policies": [{"type": "Pods", "value": 0, "period_seconds": 15}]}}, "policies[0].value is 0"),
    ],
)
def test_the_modules_own_error_comes_before_ansibles(
    capsys: pytest.CaptureFixture[str], changes: dict[str, Any], seen: str
) -> None:
    result = failure(capsys, autoscalers=[CHAT, {**CHAT, **changes}])
    assert result["hop"] == "autoscaler spec"
    assert seen in result["msg"]
    assert result["fix"]
    assert result["changed"] is False


def test_an_autoscaler_that_goes_needs_a_name_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """What else is written is no longer of interest: the API server is asked next."""
    wrong = {"name": "chat", "min_replicas": float("inf")}
    assert failure(capsys, autoscalers=[wrong], state="absent")["hop"] == "API server"
    assert "name is 'A'" in failure(capsys, autoscalers=[{"name": "A"}], state="absent")["msg"]
