"""No run ends without a reason.

ansible-core 2.19 reports `...ignoring` for an unreachable host, and then ends the run with failed=0 and unreachable=0,
if the task has `ignore_unreachable` and `run_once`, or is in a play with `any_errors_fatal`.
"""

from __future__ import annotations

from role_tasks import PARTS, Reached, reached
from task_walk import PLAYBOOKS

# These connect to no host.
CONTROLLER = {
    f"ansible.builtin.{name}"
    for name in (
        *("add_host", "assert", "debug", "fail", "group_by", "import_playbook", "import_role", "import_tasks"),
        *("include_role", "include_tasks", "include_vars", "meta", "pause", "set_fact", "set_stats"),
    )
} | {"kubegpu.autoscale.plan"}
# This one fails for an unreachable host, as any module does.
WAITS = "ansible.builtin.wait_for_connection"


def connects(found: Reached) -> bool:
    return not (CONTROLLER | {WAITS}) & found.task.keys() and not found.is_on_controller


def test_no_task_ignores_an_unreachable_host_where_that_ends_the_run() -> None:
    tasks = [found for playbook in PLAYBOOKS for found in reached(playbook)]
    assert len(tasks) > 3000
    assert not any(set(PARTS) & found.task.keys() for found in tasks)
    assert {
        (found.playbook, found.where)
        for found in tasks
        if found.keywords.get("ignore_unreachable")
        and (found.keywords.get("run_once") or found.keywords.get("any_errors_fatal"))
        and connects(found)
    } == set()
