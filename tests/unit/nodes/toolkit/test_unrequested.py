"""When the toolkit's configuration is changed so that containers get only requested GPUs, and when that is undone."""

from __future__ import annotations

import re
from base64 import b64encode
from itertools import product
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.detection import Objects, find_components
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.toolkit.unrequested_gpus import (
    DEFAULT,
    DENIED,
    KEY,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.role_plan import specification
from planned import plan_of

CHOICES = specification("_common")["kubegpu_unrequested_gpus"]["choices"]
PACKAGED = (
    f"#accept-nvidia-visible-devices-as-volume-mounts = false\n{DEFAULT}\ndisable-require = false\n\n[nvidia-ctk]\n"
)
TEXTS = {"none": "", "packaged": PACKAGED, "denied": PACKAGED.replace(DEFAULT, DENIED)}
DEPENDENT = {"unknown": None, "none": [], "a plugin": ["nvidia-device-plugin/nvidia-device-plugin"]}
STATES = [
    *product(("present", "absent"), CHOICES, (False, True), TEXTS, (False, True), (False, True), DEPENDENT),
]


def plan(
    state: str = "present",
    wanted: str = "auto",
    may_deny: bool = True,
    text: str = PACKAGED,
    is_ours: bool = False,
    is_created: bool = True,
    dependent: list[str] | None = None,
    unsettled: list[str] | None = None,
) -> dict[str, Any]:
    survey = {
        "may_deny": may_deny,
        "file": {"content": b64encode(text.encode()).decode()},
        "mark": {"stat": {"exists": is_ours}},
        "record": {"name": "prod"} if is_created else {},
        "dependent": dependent,
        "unsettled": unsettled or [],
    }
    return plan_of("nvidia_container_toolkit.unrequested", survey, state=state, unrequested_gpus=wanted)


def applied(text: str, found: dict[str, Any]) -> str:
    """As ansible.builtin.lineinfile changes the file."""
    line = found["line"]["denied" if found["steps"]["deny"] else "default"]
    if not (found["steps"]["deny"] or found["steps"]["accept"]):
        return text
    assert re.search(found["line"]["regexp"], text, re.MULTILINE)
    return re.sub(found["line"]["regexp"] + ".*", line, text, flags=re.MULTILINE)


@pytest.mark.parametrize(("state", "wanted", "may_deny", "text", "is_ours", "is_created", "dependent"), STATES)
def test_each_state_is_left_as_it_has_to_be(
    state: str, wanted: str, may_deny: bool, text: str, is_ours: bool, is_created: bool, dependent: str
) -> None:
    def again(current: str, marked: bool) -> dict[str, Any]:
        return plan(state, wanted, may_deny, current, marked, is_created, DEPENDENT[dependent])

    found = again(TEXTS[text], is_ours)
    steps = found["steps"]
    after = applied(TEXTS[text], found)
    marked = (is_ours or steps["deny"]) and not steps["forget"]
    is_denied = DENIED in after.splitlines()
    assert found["is_denied"] is is_denied

    assert not (steps["deny"] and (steps["accept"] or steps["forget"]))
    # A component that needs the variable can restart at any time.
    if dependent != "none":
        assert not steps["deny"]
        assert not (is_denied and marked and dependent == "a plugin")
    # Nothing is left of this collection where it must not be.
    if state == "absent" or wanted == "allow":
        assert not marked
        assert not (is_denied and is_ours)
    # Settings of others stay.
    if text == "denied" and not is_ours:
        assert after == TEXTS[text]
    if state == "present" and wanted == "deny" and may_deny and dependent == "none" and text != "none":
        assert is_denied
    if state == "present" and wanted == "auto" and not is_created:
        assert not steps["deny"]
    assert bool(found["refused"]) == (
        state == "present" and wanted == "deny" and may_deny and dependent == "a plugin" and text != "none"
    )
    # A second run, and one after a run that was killed between mark and configuration, end alike.
    assert not any(again(after, marked)["steps"].values())
    if steps["deny"]:
        assert again(TEXTS[text], True)["steps"]["deny"]


def plugin(capabilities: list[str], observed: int, updated: int, desired: int) -> dict[str, Any]:
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": "nvcr.io/nvidia/k8s-device-plugin:v0.19.0",
        "env": [{"name": "DEVICE_LIST_STRATEGY", "value": "cdi-cri"}],
        "securityContext": {"capabilities": {"add": capabilities}},
    }
    return {
        "kind": "DaemonSet",
        "metadata": {"name": "plugin", "namespace": "gpus", "generation": 2},
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {
            "observedGeneration": observed, "updatedNumberScheduled": updated, "desiredNumberScheduled": desired,
        },
    }  # fmt: skip


ROLLOUTS = [*product(([], ["SYS_ADMIN"]), (1, 2), (0, 1, 2, 3), (0, 2, 3))]


@pytest.mark.parametrize("text", ["packaged", "denied"])
@pytest.mark.parametrize(("capabilities", "observed", "updated", "desired"), ROLLOUTS)
def test_a_roll_out_that_is_not_complete_changes_no_server(
    capabilities: list[str], observed: int, updated: int, desired: int, text: str
) -> None:
    """A node that is away or joins keeps a roll-out open for as long as it likes."""
    [row] = find_components(Objects(daemon_sets=[plugin(capabilities, observed, updated, desired)]))["device_plugin"]
    read = {
        "dependent": [row["name"]] * row["depends_on_variable"],
        "unsettled": [row["name"]] * (not row["is_rolled_out"]),
    }
    for wanted in ("auto", "deny"):
        found = plan(wanted=wanted, text=TEXTS[text], is_ours=text == "denied", **read)
        is_complete = observed == 2 and updated >= desired

        assert found["steps"]["deny"] is (text == "packaged" and bool(capabilities) and is_complete)
        assert found["steps"]["accept"] is (text == "denied" and not capabilities)
        told = found["refused"] if wanted == "deny" else found["notices"]
        assert bool(told) is (not capabilities or (text == "packaged" and not is_complete))
        if capabilities and told:
            assert "gpus/plugin may have pods from before its last change. Next: when it has replaced" in told[0]


@pytest.mark.parametrize("line", [f"  {KEY}=false", f"{KEY} = false # by hand", f"\t{KEY}  =  false"])
def test_a_configuration_written_by_hand_is_understood(line: str) -> None:
    assert not any(plan(wanted="deny", text=PACKAGED.replace(DEFAULT, line), dependent=[])["steps"].values())


def test_what_keeps_gpus_open_is_named() -> None:
    [notice] = plan(dependent=["gpus/plugin"])["notices"]

    assert "gpu1 still gives every container of the runtime nvidia the GPUs" in notice
    assert "because gpus/plugin depends on it" in notice
    assert "Next: give the container the capability SYS_ADMIN" in notice
