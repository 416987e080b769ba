"""What tools/bench/bench_doctor.py feeds to Prometheus and computes from what it measures."""

from __future__ import annotations

from collections import Counter

import pytest
from bench_doctor import TARGETS, Bench, Look
from bench_report import verdicts
from doctor_cluster import FIELDS, GPUS_PER_NODE, Size, exporter_lines, pods_of
from rich.console import Console

SMALL, LARGE = Size(100, 50), Size(1000, 500)


def look(size: Size, wall_s: float, **requests: int) -> Look:
    asked = {title.replace("_", " "): count for title, count in requests.items()}
    return Look(size, wall_s, wall_s, 300, asked, 2, 1)


@pytest.mark.parametrize("size", [Size(3, 2), Size(2, 20)])
def test_each_pod_holds_one_gpu_and_each_exporter_is_up(size: Size) -> None:
    lines = list(exporter_lines(size))
    assert len(lines) == size.nodes * (1 + GPUS_PER_NODE * len(FIELDS))
    assert sum(line.startswith("up{") for line in lines) == size.nodes
    held = Counter(line.partition('namespace="')[2].partition("}")[0] for line in lines if 'pod="' in line)
    expected = {
        f'{namespace}",pod="{pod}"': len(FIELDS) for namespace, pod in pods_of(size)[: size.nodes * GPUS_PER_NODE]
    }
    assert held == expected


def test_pages_of_a_list_are_no_more_requests() -> None:
    few = look(SMALL, 1, list_pods=2)
    many = Look(LARGE, 9, 6, 300, {"list pods": 2, "list, next page pods": 10}, 2, 1)
    assert Bench([few, many]).more_requests == 0
    assert Bench([few, look(LARGE, 9, list_pods=3)]).more_requests == 1


@pytest.mark.parametrize(("wall_s", "verdict"), [(9, "met"), (31, "missed")])
def test_the_largest_size_is_held_to_the_bound(wall_s: float, verdict: str) -> None:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(verdicts(Bench([look(SMALL, 1), look(LARGE, wall_s)]), TARGETS))
    [line] = [line for line in capture.get().splitlines() if "wall time" in line]
    assert line.split("│")[-2].strip() == verdict
