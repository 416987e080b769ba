"""Windows, policies and bounds. The controller itself is asked in tests/integration/test_controller_over_time.py."""

from __future__ import annotations

from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.controller import (
    Behavior,
    Controller,
    Decision,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaling_rules import (
    ScalingPolicy,
    ScalingRules,
)
from hypothesis import given
from hypothesis import strategies as st

FREE = ScalingRules(0, (ScalingPolicy("Pods", 1000, 1),), "Max")


def rules(*policies: tuple[str, int, int], window: int = 0, select: str = "Max") -> ScalingRules:
    return ScalingRules(window, tuple(ScalingPolicy(*policy) for policy in policies), select)


def replicas(
    behavior: Behavior,
    wanted: list[int | None],
    *,
    start: int,
    period_s: int = 15,
    maximum: int = 100,
    minimum: int = 1,
) -> list[int]:
    controller, found = Controller(minimum, maximum, behavior), [start]
    for step, proposal in enumerate(wanted):
        found.append(controller.decide(step * period_s, found[-1], proposal).replicas)
    return found[1:]


def test_two_pods_in_15_s() -> None:
    up = Behavior(rules(("Pods", 2, 15)), FREE)
    assert replicas(up, [9] * 4, start=1, period_s=5) == [3, 3, 3, 5]


def test_the_larger_of_two_policies_and_the_smaller() -> None:
    both = ("Pods", 2, 15), ("Percent", 100, 15)
    assert replicas(Behavior(rules(*both), FREE), [50] * 3, start=4) == [8, 16, 32]
    assert replicas(Behavior(rules(*both, select="Min"), FREE), [50] * 3, start=4) == [6, 8, 10]


def test_a_percentage_is_rounded_in_favour_of_more_pods() -> None:
    behavior = Behavior(rules(("Percent", 10, 15)), rules(("Percent", 50, 15)))
    assert replicas(behavior, [9], start=1) == [2]
    assert replicas(behavior, [1], start=5) == [2]


def test_a_direction_that_is_disabled() -> None:
    behavior = Behavior(rules(("Pods", 4, 15), select="Disabled"), rules(("Pods", 4, 15)))
    assert replicas(behavior, [9, 1], start=5) == [5, 1]


def test_what_was_added_counts_when_it_is_taken_back() -> None:
    """At the period's start there was one pod: the policy allows down to three below that."""
    behavior = Behavior(FREE, rules(("Pods", 3, 60)))
    assert replicas(behavior, [9, 1], start=6, period_s=5) == [9, 3]


def test_a_change_older_than_its_own_policies_makes_room_for_the_next() -> None:
    """All were added within the minute of the policy down. Only one makes room at a time, the youngest of the old."""
    behavior = Behavior(rules(("Pods", 1, 5)), rules(("Pods", 1, 60)))
    assert replicas(behavior, [9, 9, 9, 1], start=1, period_s=10) == [2, 3, 4, 2]
    behavior = Behavior(rules(("Pods", 5, 5)), rules(("Pods", 1, 60)))
    assert replicas(behavior, [2, 3, 3, 4, 1], start=1, period_s=3) == [2, 3, 3, 4, 1]


def test_the_highest_of_the_window_counts_on_the_way_down() -> None:
    behavior = Behavior(FREE, rules(("Percent", 100, 15), window=30))
    assert replicas(behavior, [8, 5, 1, 1, 1, 1], start=4) == [8, 8, 5, 1, 1, 1]


def test_the_lowest_of_the_window_counts_on_the_way_up() -> None:
    behavior = Behavior(rules(("Pods", 100, 15), window=30), FREE)
    assert replicas(behavior, [8, 9, 8, 9], start=4) == [4, 4, 8, 8]


def test_the_first_look_remembers_what_there_was() -> None:
    behavior = Behavior(FREE, rules(("Percent", 100, 15), window=60))
    assert replicas(behavior, [2] * 6, start=5) == [5, 5, 5, 5, 2, 2]


def test_without_a_value_nothing_happens() -> None:
    assert replicas(Behavior(FREE, FREE), [None, 3], start=2) == [2, 3]


def test_bounds_come_before_metrics_and_policies() -> None:
    slow = Behavior(rules(("Pods", 1, 60)), rules(("Pods", 1, 60)))
    assert replicas(slow, [9], start=12, maximum=8) == [8]
    assert replicas(slow, [9], start=1, minimum=3) == [3]
    assert replicas(slow, [9], start=0) == [0]


def test_without_a_behavior_each_decision_may_double() -> None:
    stock = Behavior.of_hpa({})
    assert replicas(stock, [50] * 4, start=1) == [4, 8, 16, 32]
    assert replicas(stock, [4] + [1] * 20, start=4)[-2:] == [4, 1]


def test_without_a_behavior_an_older_recommendation_still_adds_pods() -> None:
    """Only with one is what the window gives kept from going beyond what there is."""
    assert replicas(Behavior.of_hpa({}), [10, 2, 2], start=1) == [4, 8, 10]
    assert replicas(Behavior.of_hpa({}), [10, 4, 5], start=1) == [4, 8, 10]
    assert replicas(Behavior.of_hpa({"behavior": {"scaleUp": {}}}), [10, 2, 2], start=1) == [5, 5, 5]


def test_the_api_servers_defaults_fill_what_an_hpa_leaves_open() -> None:
    read = Behavior.of_hpa(
        {"behavior": {"scaleUp": {"tolerance": "50m"}, "scaleDown": {"stabilizationWindowSeconds": 0}}}
    )
    assert [(policy.type, policy.value) for policy in read.scale_up.policies] == [("Pods", 4), ("Percent", 100)]
    assert (read.tolerance.up, read.tolerance.down) == (0.05, 0.1)
    assert read.scale_down.stabilization_window_seconds == 0


def test_a_decision_says_what_limited_it() -> None:
    controller = Controller(1, 8, Behavior(rules(("Pods", 2, 15)), rules(("Pods", 1, 15), window=60)))
    assert controller.decide(0, 2, 9) == Decision(2, 9, 9, 4, "policy")
    assert controller.decide(20, 7, 9) == Decision(7, 9, 9, 8, "maximum")
    assert controller.decide(30, 8, 3) == Decision(8, 3, 8, 8)
    assert controller.decide(100, 8, 3) == Decision(8, 3, 3, 7, "policy")


policies = st.lists(
    st.builds(
        ScalingPolicy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 100), st.sampled_from([1, 15, 60, 300])
    ),
    min_size=1,
    max_size=3,
).map(tuple)
any_rules = st.builds(
    ScalingRules, st.sampled_from([0, 5, 60, 300]), policies, st.sampled_from(["Max", "Min", "Disabled"])
)
behaviors = st.builds(Behavior, any_rules, any_rules, st.booleans())
proposals = st.lists(st.integers(0, 60) | st.none(), min_size=1, max_size=60)


@given(behaviors, proposals, st.integers(1, 20), st.integers(0, 30))
def test_never_outside_the_bounds(behavior: Behavior, wanted: list[int | None], minimum: int, more: int) -> None:
    found = replicas(behavior, wanted, start=minimum, minimum=minimum, maximum=minimum + more)
    assert all(minimum <= count <= minimum + more for count in found)


@given(behaviors, proposals, st.integers(1, 40))
def test_never_further_than_what_some_look_of_the_window_asked_for(
    behavior: Behavior, wanted: list[int | None], start: int
) -> None:
    """No lower than the highest of the last seconds, and no higher than the lowest: said without the deques.

    Without a behavior the highest counts both ways.
    """
    period_s, found = 15, [start, *replicas(behavior, wanted, start=start)]
    down_s, up_s = (way.stabilization_window_seconds for way in (behavior.scale_down, behavior.scale_up))
    for step, proposal in enumerate(wanted):
        if proposal is None:
            assert found[step + 1] == found[step]
            continue
        asked = [(0, start), *((at * period_s, value) for at, value in enumerate(wanted[:step]) if value is not None)]
        now_s = step * period_s
        highest = max([value for at, value in asked if at > now_s - down_s] + [proposal])
        lowest = min([value for at, value in asked if at > now_s - up_s] + [proposal])
        most = lowest if behavior.is_given else highest
        if found[step + 1] < found[step]:
            assert found[step + 1] >= highest or found[step + 1] == 1
        if found[step + 1] > found[step]:
            assert found[step + 1] <= most


@given(any_rules, any_rules, st.integers(1, 40), st.integers(1, 40), st.integers(1, 60))
def test_looks_at_which_all_stays_are_remembered_alike(
    up: ScalingRules, down: ScalingRules, start: int, wanted: int, later_s: int
) -> None:
    """The short way for them is no other way."""
    short, long = (Controller(1, 100, Behavior(up, down)) for _ in range(2))
    for step in range(5):
        long.decide(step * 15, start, start)
    short.stays(60, start)
    assert short.decide(60 + later_s, start, wanted) == long.decide(60 + later_s, start, wanted)
