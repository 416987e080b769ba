"""What is counted of scale-downs, by a service that is simulated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_drain import ScaleDown, scale_downs, verdict

STARTS_S, ENDS_S, RATE, TIMEOUT_S = 4.0, 3.0, 20, 5.0


class Simulated:
    """Each pod that ends loses some requests, of which the load generator learns after its timeout."""

    def __init__(self, lost: int = 0) -> None:
        self.now_s, self.replicas, self.scaled_s, self.lost, self.told = 0.0, 1, -100.0, lost, 0
        self.before = 1

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.lost and self.before > self.replicas and self.now_s >= self.scaled_s + TIMEOUT_S:
            self.told += self.lost * (self.before - self.replicas)
            self.before = self.replicas

    def scale(self, replicas: int) -> None:
        self.before, self.replicas, self.scaled_s = self.replicas, replicas, self.now_s

    def pods(self) -> tuple[int, int]:
        passed_s = self.now_s - self.scaled_s
        if self.before < self.replicas:
            return (self.replicas if passed_s >= STARTS_S else self.before), self.replicas
        return self.replicas, (self.replicas if passed_s >= ENDS_S else self.before)

    def counters(self) -> dict[str, float]:
        served = RATE * self.now_s - self.told
        return {"served": served, "rejected": 0.0, "failed": float(self.told), "requests_per_s": float(RATE)}


def test_each_scale_down_has_its_requests() -> None:
    service = Simulated()
    found = list(scale_downs(service, 3, 4, 1, clock=service.clock, sleep=service.sleep))
    assert found == [ScaleDown(pods=3, ended_s=ENDS_S, asked=180, served=180, rejected=0, failed=0)] * 3
    assert verdict(found, drains=True) == ("0 of 540 requests lost, in 0 of 3 scale-downs", True)


def test_requests_that_time_out_after_the_pods_are_gone_are_counted() -> None:
    service = Simulated(lost=2)
    found = list(scale_downs(service, 2, 4, 1, clock=service.clock, sleep=service.sleep))
    assert [one.failed for one in found] == [6, 6]
    assert verdict(found, drains=True) == ("12 of 360 requests lost, in 2 of 2 scale-downs", False)
    assert verdict(found, drains=False)[1]


def test_a_run_without_a_drain_that_loses_nothing_shows_nothing() -> None:
    one = ScaleDown(pods=3, ended_s=3.0, asked=180, served=180, rejected=0, failed=0)
    assert verdict([one], drains=False) == ("0 of 180 requests lost, in 0 of 1 scale-downs, without a drain", False)
    assert not verdict([replace(one, served=0)], drains=True)[1]
    assert not verdict([], drains=True)[1]


@pytest.mark.parametrize(
    ("served", "rejected"),
    [
        pytest.param(0, 180, id="all rejected"),
        pytest.param(80, 100, id="most rejected"),
        pytest.param(-400, 0, id="the load generator began anew"),
        pytest.param(0, 0, id="no load"),
    ],
)
def test_a_scale_down_without_served_requests_shows_nothing(served: int, rejected: int) -> None:
    good = ScaleDown(pods=3, ended_s=3.0, asked=180, served=180, rejected=0, failed=0)
    text, has_shown = verdict([good, replace(good, served=served, rejected=rejected)], drains=True)
    assert not has_shown
    assert "in 1 of them less than half of the load was served" in text
    assert verdict([good], drains=True)[1]


def test_pods_that_do_not_come_end_the_run() -> None:
    service = Simulated()
    service.pods = lambda: (1, 1)  # type: ignore[method-assign]
    with pytest.raises(TimeoutError, match="not 4 pods after 300 s"):
        list(scale_downs(service, 1, 4, 1, clock=service.clock, sleep=service.sleep))
