from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.shapes import (
    HOLD_S,
    as_dicts,
    from_dict,
    stages_of,
)


def shaped(shape: str, **more):
    return stages_of(shape, **{"low": 2, "high": 40, "settle_s": 30, "fall_s": 300} | more)


def test_a_step_jumps_and_falls_back():
    assert [(stage.name, stage.seconds, stage.first, stage.last) for stage in shaped("step")] == [
        ("before", 30, 2, 2),
        ("load", 120, 40, 40),
        ("after", 300, 2, 2),
    ]


def test_a_ramp_rises_in_a_straight_line():
    _, rise, load, _ = shaped("ramp", rise_s=60)
    assert (rise.seconds, load.first) == (60, 40)
    assert [rise.rate(second) for second in (-1, 0, 30, 60, 61)] == [2, 2, 21, 40, 40]


@pytest.mark.parametrize("shape", HOLD_S)
def test_how_long_the_load_is_held_is_the_shapes_or_said(shape):
    def held(**more):
        return next(stage.seconds for stage in shaped(shape, **more) if stage.name == "load")

    assert held() == HOLD_S[shape]
    assert held(hold_s=7) == 7


def test_a_stage_of_no_time_is_none():
    assert [stage.name for stage in shaped("step", settle_s=0, fall_s=0)] == ["load"]


def test_a_shape_that_is_none_is_refused():
    with pytest.raises(KeyError, match="wave"):
        shaped("wave")


def test_stages_come_back_from_what_is_written_down():
    stages = shaped("ramp")
    assert [from_dict(stage) for stage in as_dicts(stages)] == stages
    assert as_dicts(stages)[1]["sentence"] == "rise: 2 to 40 requests/s for 120 s"
