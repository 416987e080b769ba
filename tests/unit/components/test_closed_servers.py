"""No component comes to need a variable that a server ignores, whichever servers a run reaches."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.closed_servers import refusal as closed_to
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.plugin_pools import plugin_pools

SERVERS = ("gpu1", "gpu2", "gpu3")
CONTEXTS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"securityContext": {"privileged": True, "capabilities": None}}, True),
    ({"securityContext": {"capabilities": {"drop": ["ALL"]}}}, True),
    ({"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}, False),
    ({"securityContext": {"capabilities": None}}, False),
    ({"securityContext": None}, False),
]
STRATEGIES = {"": True, "cdi-cri": True, "cdi-annotations": True, "envvar,cdi-cri": True, "envvar": False}
PRESENT = {
    "none": [],
    "needs it already": [{"owned": True, "depends_on_variable": True}],
    "needs it not": [{"owned": True, "depends_on_variable": False}],
    "of others": [{"owned": False, "depends_on_variable": True}],
}


@pytest.mark.parametrize(("context", "is_privileged"), CONTEXTS)
@pytest.mark.parametrize("before", PRESENT)
def test_no_component_comes_to_need_what_a_server_ignores(
    context: dict[str, Any], is_privileged: bool, before: str
) -> None:
    """Each set of servers that are open in this run, and each change of the options."""
    for strategy, of_cpu_manager, *is_open in product(STRATEGIES, (False, True), *[(False, True)] * len(SERVERS)):
        closed = [server for server, reached in zip(SERVERS, is_open, strict=True) if not reached]
        values = {**context, "deviceListStrategy": strategy, "compatWithCPUManager": of_cpu_manager}
        # As the role combines them.
        values = {**plugin_pools({"values": values})["chart_values"], **values}
        found = closed_to(values, closed, PRESENT[before])
        needs = not (is_privileged or of_cpu_manager) or not STRATEGIES[strategy]

        assert bool(found) is (needs and bool(closed) and before != "needs it already")
        assert all(server in found for server in closed) or not found
        assert not found or "Nothing was changed. Next: give the container the capability SYS_ADMIN" in found
