from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_loadtest_report import gpu_loadtest_report
from load_runs import FALLS_S, RISES_S, a_run, of_stages

LATE = {0: (1, 1, 0.2), RISES_S + 20: (5, 5, 0.9)}


def test_lines_for_a_terminal():
    assert gpu_loadtest_report(a_run()) == [
        "ml/chat: the load test passed",
        "  first decision after the load rose  7 s (worst case 10 s)",
        "  enough replicas ready               30 s",
        "  replicas before, needed, at most    1, 5, 5",
        "  first step down after the load fell 60 s",
        "  as few as before                    65 s",
        "  requests                            12,000 served, 35 rejected, 0 refused in stream, 0 failed, 0 timed out, "
        "0 dropped",
    ]


def test_lines_with_what_users_got():
    goals = {"p95_ms": 4000, "ttft_p95_ms": "1500"}
    assert gpu_loadtest_report(a_run(requests=of_stages(), goals=goals))[-3:] == [
        "  requests                            1,020 served, 60 rejected, 40 refused in stream, 0 failed, 0 timed out, "
        "0 dropped",
        "  latency under load, p50, p95, p99   2,196 ms, 3,194 ms, 3,629 ms (goal of p95: 4,000 ms)",
        "  time to first token                 830 ms, 1,310 ms, 1,400 ms (goal of p95: 1,500 ms)",
    ]


def test_the_page_shows_what_users_got_in_each_stage():
    page = gpu_loadtest_report(a_run(requests=of_stages()), "html")
    [table] = re.findall("<h2>What users got</h2><div[^>]*>(<table>.*?</table>)", page, re.DOTALL)
    rows = ElementTree.fromstring(table.replace("<wbr>", "")).findall(".//tbody/tr")
    none = "not counted"
    assert [[cell.text for cell in row] for row in rows[:2]] == [
        ["before", "2", "1", "410 ms, 620 ms, 700 ms", "not measured", "60", "0", "0", "0", "0", none],
        [
            "load",
            "100",
            "5",
            "2,196 ms, 3,194 ms, 3,629 ms",
            "830 ms, 1,310 ms, 1,400 ms",
            "900",
            "60",
            "40",
            "0",
            "0",
            "28,800",
        ],
    ]
    assert "What users got" not in gpu_loadtest_report(a_run(requests={}), "html")


def test_the_first_problem_is_the_headline():
    assert gpu_loadtest_report(a_run(LATE), "headline") == (
        "ml/chat: the HPA decided 20 s after the load rose, "
        "later than the worst case of 10 s for the periods of its chain, and 1 more"
    )


def test_replicas_that_the_rules_of_the_hpa_still_hold():
    """`never` would read as a fault."""
    slowly = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}}}
    lines = gpu_loadtest_report(a_run({0: (1, 1, 0.25), RISES_S + 7: (5, 5, 0.92)}, **slowly))
    assert "  as few as before                    not so soon, by the HPA's rules" in lines


def test_a_stage_while_the_test_is_under_way():
    run = a_run()
    run["samples"] = [sample for sample in run["samples"] if sample["time_s"] < run["began_s"] + FALLS_S]
    assert gpu_loadtest_report(run, "stage") == ("load: 1 to 5 replicas wanted, first after 7.0 s; 5 ready at the end")
    run["samples"] = run["samples"][:10]
    assert gpu_loadtest_report(run, "stage") == "before: 1 replica wanted throughout; 1 ready at the end"


def test_rates_that_nobody_knows_are_not_shown():
    """Those of a generator of one's own."""
    run = a_run()
    for stage in run["stages"]:
        stage |= {"first": 0.0, "last": 0.0}
    page = gpu_loadtest_report(run, "html")
    assert "load: 120 s" in page
    assert "requests/s" not in page


def test_a_page_that_needs_nothing_else():
    page = gpu_loadtest_report(a_run(LATE, name="<chat>"), "html")
    assert "<chat>" not in page
    assert "ml/&lt;chat&gt;" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert page.count("Successful<wbr>Rescale") == 1  # two looks told of it
    assert page == gpu_loadtest_report(a_run(LATE, name="<chat>"), "html")


@pytest.mark.parametrize(("changes", "failures"), [(None, "0"), (LATE, "1")])
def test_xml_for_ci(changes, failures):
    suite = ElementTree.fromstring(gpu_loadtest_report(a_run(changes), "junit")).find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("1", failures)
    assert len(suite.findall("testcase/failure")) == int(failures)
    assert "12,000 served" in suite.findtext("testcase/system-out")


def test_the_verdict_is_data():
    assert json.loads(json.dumps(gpu_loadtest_report(a_run(), "verdict")))["problems"] == []


def test_what_is_no_load_test_is_refused():
    with pytest.raises(AnsibleFilterError, match="no load test"):
        gpu_loadtest_report({"stages": []})
    with pytest.raises(AnsibleFilterError, match="pdf is not one of text"):
        gpu_loadtest_report(a_run(), "pdf")
