"""What is counted of a run of site.yml."""

from __future__ import annotations

from typing import Any

from bench_site import ratios, summary


def task(name: str, seconds: int, **hosts: dict[str, Any]) -> dict[str, Any]:
    begin, end = "2026-01-01T00:00:00Z", f"2026-01-01T00:00:{seconds:02}Z"
    return {"task": {"name": name, "duration": {"start": begin, "end": end}}, "hosts": hosts}


RUN = {
    "plays": [
        {
            "tasks": [
                task("install", 9, a={"changed": True}, b={"changed": False}),
                task("remove", 1, a={"skipped": True}, b={"skipped": True}),
                task("write", 3, a={"results": [{"skipped": True}, {"changed": True}], "changed": True}),
                task("configure", 0, a={"include": "configure.yml"}),
                {"task": {"name": "meta", "duration": {"start": "2026-01-01T00:00:00Z"}}, "hosts": {}},
            ]
        }
    ]
}


def test_results_are_counted_by_host_and_item() -> None:
    run = summary(RUN, seconds=20, cpu_s=10)
    assert (run.tasks, run.includes) == (4, 1)
    assert run.results == {"changed": 2, "ok": 2, "skipped": 3}
    assert run.slowest[:2] == [(9.0, "install"), (3.0, "write")]


def test_the_last_run_is_held_against_the_first() -> None:
    first, last = (summary(RUN, seconds=seconds, cpu_s=cpu) for seconds, cpu in ((200, 80), (50, 20)))
    assert ratios([first, last]) == {"seconds": 0.25, "cpu": 0.25}
