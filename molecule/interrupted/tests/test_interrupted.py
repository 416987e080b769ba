"""A run that is killed: what its tasks have returned is lost, and so are the handlers that they asked for."""

from __future__ import annotations

from server import SCENARIO, kill, run

SITE = SCENARIO.parent / "shared" / "nodes.yml"
KILLS = 10
CHANGES = 3  # tasks between two of them; on a bare server some forty change something


def test_a_run_that_is_killed_ten_times_is_run_again_and_converges() -> None:
    killed_at = [kill(SITE, changes=CHANGES) for _ in range(KILLS)]

    last = run(SITE)
    after = run(SITE)

    assert len(set(killed_at)) == KILLS
    assert last.succeeded
    assert last.changed
    assert (after.succeeded, after.changed) == (True, 0)
