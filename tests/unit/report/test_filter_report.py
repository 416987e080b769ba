from __future__ import annotations

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_doctor_report import FilterModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.doctor_texts import failure
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.html import html
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.junit import junit
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.text import text_lines
from collection import ROOT
from doctor_reports import BROKEN

show = FilterModule().filters()["gpu_doctor_report"]


def test_each_format_has_its_text() -> None:
    assert show(BROKEN) == text_lines(BROKEN, width=80)
    assert show(BROKEN, colour=True, width=60) == text_lines(BROKEN, colour=True, width=60)
    assert [show(BROKEN, name) for name in ("html", "junit", "failure")] == [
        html(BROKEN),
        junit(BROKEN),
        failure(BROKEN),
    ]


def test_the_documented_formats_are_those_that_there_are() -> None:
    page = yaml.safe_load((ROOT / "plugins" / "filter" / "gpu_doctor_report.yml").read_text())
    for name in page["DOCUMENTATION"]["options"]["format"]["choices"]:
        assert show(BROKEN, name)


@pytest.mark.parametrize(
    ("value", "format_", "seen"),
    [(BROKEN, "pdf", "pdf is not one of text"), ({}, "text", "no report"), ("broken", "html", "no report")],
    ids=["unknown format", "empty", "a text"],
)
def test_what_cannot_be_shown_is_refused(value: object, format_: str, seen: str) -> None:
    with pytest.raises(AnsibleFilterError, match=seen):
        show(value, format_)


def test_role_options_are_documented_with_their_defaults() -> None:
    role = ROOT / "roles" / "gpu_doctor"
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    templates = {name for name, value in defaults.items() if "{{" in str(value)}
    assert templates == {"gpu_doctor_prometheus", "gpu_doctor_report_dir"}
    assert set(spec) == set(defaults)
    assert {name: option["default"] for name, option in spec.items() if name not in templates} == {
        name: value for name, value in defaults.items() if name not in templates
    }
