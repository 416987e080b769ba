from __future__ import annotations

import re
from copy import deepcopy
from itertools import pairwise

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.html import html
from doctor_reports import BLIND, BROKEN, EVIL, FLEET, HOPS, HOSTILE, REPORTS, autoscaler, report
from page import Node, read

PAGES = {name: read(html(report)) for name, report in REPORTS.items()}
each_page = pytest.mark.parametrize("name", PAGES)


@each_page
def test_each_hop_has_its_light_with_its_word(name: str) -> None:
    for hop in REPORTS[name]["hops"]:
        item = PAGES[name].one("li", id=f"hop-{hop['id']}")
        light = item.one("svg", class_=hop["status"])
        assert light.one("title").text == hop["status"]
        assert item.one(class_="word").text == hop["status"]
        assert item.one(class_="title").text == hop["title"]
        assert item.one(class_="summary").text == hop["summary"]


def test_each_status_has_a_shape_of_its_own() -> None:
    words = ("ok", "warning", "broken", "consequence", "unknown")
    page = read(html(report(dict(zip(HOPS, words, strict=False)))))
    lights = page.one("ol").all("svg")[: len(words)]
    assert len({light.one("path", class_="shape").attributes["d"] for light in lights}) == len(words)
    assert len({light.one("path", class_="sign").attributes["d"] for light in lights}) == len(words)


@pytest.mark.parametrize(("status", "light"), [("ok", "ok"), ("unknown", "unknown")])
def test_no_green_light_stands_for_a_chain_of_which_nothing_is_there(status: str, light: str) -> None:
    page = read(html(report(dict.fromkeys(HOPS, status))))
    assert page.one("div", class_="verdict").one("svg").one("title").text == light


@each_page
def test_each_finding_is_a_card_with_all_that_was_found(name: str) -> None:
    findings = REPORTS[name]["findings"]
    cards = PAGES[name].all("article", class_="finding")
    assert len(cards) == len(findings)
    for card, finding in zip(cards, findings, strict=True):
        shown = re.sub("\ufffd", "\x1b", card.text)
        for text in (finding["id"], finding["severity"], finding["object"], finding["cause"], *finding["seen"]):
            assert text in shown
        assert card.one("dd", class_="fix").text == finding["fix"].replace("\x1b", "\ufffd")
        assert all(text in shown for text in (*finding["consequences"], finding["doc"]))


def test_a_finding_links_to_its_section_in_the_documentation() -> None:
    [link] = [link for link in PAGES["broken"].all("a") if link.text.startswith("docs/")][:1]
    finding = REPORTS["broken"]["findings"][0]
    assert link.attributes["href"] == f"https://github.com/kubegpu/autoscale/blob/main/{finding['doc']}"


def test_names_break_between_their_words() -> None:
    page = html(report(autoscalers=[autoscaler("chat-of-the-team")]))
    assert "chat-<wbr>of-<wbr>the-<wbr>team" in page
    assert "Horizontal<wbr>Pod<wbr>Autoscaler" in page
    assert "2<wbr>" not in page.partition("</header>")[0].replace(":<wbr>", "")


@each_page
def test_a_hop_leads_to_its_findings(name: str) -> None:
    links = {href for link in PAGES[name].all("a") if (href := link.attributes["href"]).startswith("#")}
    found = {f"#findings-{finding['hop']}" for finding in REPORTS[name]["findings"]}
    assert links == {"#findings", *found}
    assert all(len(PAGES[name].all(id=link[1:])) == 1 for link in links)


def points(plot: Node, kind: str, move: str) -> int:
    (line,) = [path for path in plot.all("path", class_=kind) if "sample" not in path.classes]
    return len(re.findall(f"[M{move}]", line.attributes["d"]))


@pytest.mark.parametrize("samples", [1, 2, 60])
def test_a_plot_has_a_point_for_each_sample(samples: int) -> None:
    plot = read(html(report(autoscalers=[autoscaler(samples=samples)]))).one("svg", class_="plot")
    assert points(plot, "value", "L") == samples
    assert points(plot, "target", "L") == samples
    assert points(plot, "current", "V") == samples
    assert points(plot, "desired", "V") == samples


def test_a_gap_in_the_samples_is_a_gap_in_the_line() -> None:
    plot = read(html(report(autoscalers=[BLIND]))).one("svg", class_="plot")
    assert points(plot, "value", "L") == 13
    (line,) = [path for path in plot.all("path", class_="value") if "sample" not in path.classes]
    assert line.attributes["d"].count("M") == 2


def test_an_axis_holds_the_highest_value_and_the_target() -> None:
    busy = autoscaler(target_value=130.0)
    busy["history"]["value"][3] = 340.0
    labels = [text.text for text in read(html(report(autoscalers=[busy]))).one("svg", class_="plot").all("text")]
    assert "500" in labels
    assert "gpu, %" in labels
    assert "target 130" in labels


def test_a_plot_is_told_in_words() -> None:
    desc = read(html(report(autoscalers=[autoscaler()]))).one("desc").text
    assert desc == (
        "gpu: 55 to 81 %, at last 58 %, target 60 %. Replicas: 2 to 5, at last 2; desired: 2 to 5, at last 2."
    )


def test_samples_without_any_value_and_no_target_draw_axes_alone() -> None:
    silent = autoscaler(samples=5, target_value=None)
    silent["history"] |= {"value": [None] * 5, "replicas": [None] * 5, "desired": [0] * 5}
    plot = read(html(report(autoscalers=[silent]))).one("svg", class_="plot")
    assert points(plot, "value", "L") == 0
    assert plot.all("path", class_="target") == []
    assert "gpu: no samples" in plot.one("desc").text


def test_an_autoscaler_without_history_says_so() -> None:
    assert "No samples of the last minutes." in PAGES["broken"].text
    assert len(PAGES["broken"].all("svg", class_="plot")) == len(BROKEN["autoscalers"]) - 1


@each_page
def test_the_table_has_a_row_for_each_autoscaler(name: str) -> None:
    tables = [table for table in PAGES[name].all("table") if table.all("th", class_="figures")]
    rows = [row for table in tables for row in table.one("tbody").all("tr")]
    assert len(rows) == len(REPORTS[name]["autoscalers"])
    assert all(len(row.all("th", scope="row")) == 1 for row in rows)
    for table in PAGES[name].all("table"):
        columns = len(table.one("thead").all("th", scope="col"))
        assert {len([*row.all("td"), *row.all("th")]) for row in table.one("tbody").all("tr")} == {columns}


def test_the_unproven_come_first() -> None:
    rows = PAGES["fleet"].one("tbody").all("tr")
    assert [row.one("td", class_="word").text for row in rows] == ["not proven"] * 3 + ["proven"] * 57
    assert [heading.text for heading in PAGES["fleet"].one(class_="plots").all("h3")] == [
        row.one("th").text for row in rows
    ]


def test_what_was_not_checked_is_told_with_its_reason() -> None:
    row = PAGES["broken"].one("section", id="not-checked").one("tbody").one("tr")
    unchecked = BROKEN["not_checked"][0]
    assert [cell.text for cell in (*row.all("th"), *row.all("td"))] == [
        unchecked["check"],
        "Metrics API",
        unchecked["reason"],
    ]
    assert PAGES["healthy"].all("section", id="not-checked") == []


@each_page
def test_the_page_needs_nothing_from_elsewhere(name: str) -> None:
    text = html(REPORTS[name]).replace("<wbr>", "").replace(REPORTS[name]["cluster"]["server"], "")
    text = text.replace(' href="https://github.com/kubegpu/autoscale/blob/main/', "")  # nothing is loaded from a link
    assert not re.search(r"https?:|//|url\(|@import|@font-face", text.replace("</", ""))
    assert not {node.tag for node in PAGES[name].all()} & {"script", "img", "iframe", "object", "image", "use"}
    assert [link.attributes["href"] for link in PAGES[name].all("link")] == ["data:,"]  # an empty icon
    assert not [
        attribute for node in PAGES[name].all() for attribute in node.attributes if attribute.startswith(("on", "src"))
    ]


def test_what_a_cluster_says_stays_text() -> None:
    assert "<script" not in html(HOSTILE)
    shown = EVIL.replace("\x1b", "\ufffd")
    assert PAGES["hostile"].one("article", class_="finding").one("h4").text == shown
    assert shown in PAGES["hostile"].one("svg", class_="plot").one("title").text


@each_page
def test_the_same_report_gives_the_same_page(name: str) -> None:
    assert html(deepcopy(REPORTS[name])) == html(REPORTS[name])


@each_page
def test_headings_go_down_one_level_at_a_time(name: str) -> None:
    levels = [int(node.tag[1]) for node in PAGES[name].all() if re.fullmatch("h[1-6]", node.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


@each_page
def test_a_screen_reader_finds_its_way(name: str) -> None:
    page = PAGES[name]
    assert page.one("html").attributes["lang"] == "en"
    assert page.one("head").one("title").text
    assert len(page.all("main")) == 1
    ids = [node.attributes["id"] for node in page.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    named = [node.attributes["aria-labelledby"] for node in page.all() if "aria-labelledby" in node.attributes]
    assert {word for words in named for word in words.split()} <= set(ids)
    for picture in page.all("svg"):
        hidden = picture.attributes.get("aria-hidden") == "true"
        assert hidden or (picture.attributes.get("role") == "img" and picture.one("title").text)


def test_sixty_autoscalers_are_sixty_plots() -> None:
    assert len(PAGES["fleet"].all("svg", class_="plot")) == len(FLEET["autoscalers"]) == 60
