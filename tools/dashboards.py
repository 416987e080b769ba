"""Writes the dashboards' JSON in the format of Grafana's editor, from dashboards.yml.

`python tools/dashboards.py` writes it.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
FILES = ROOT / "roles" / "gpu_dashboards" / "files"
WRITTEN: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text())
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PAGES = yaml.safe_load((ROOT / "galaxy.yml").read_text())["documentation"]
COLUMNS = 24
HEIGHTS = {"stat": 4, "lights": 4}
LIGHTS = {"0": ("well", "green"), "1": ("warning", "yellow"), "2": ("broken", "red")}


def dashboard(name: str) -> dict[str, Any]:
    written = WRITTEN[name]
    return {
        "uid": f"kubegpu-{name}",
        "title": written["title"],
        "description": written["about"],
        "tags": ["kubegpu"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {
                "title": "GPUs",
                "type": "dashboards",
                "tags": ["kubegpu"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "icon": "external link",
                "tooltip": "",
                "url": "",
                "targetBlank": False,
            }
        ],
        "templating": {
            "list": [_data_source(), *(_variable(*variable) for variable in written.get("variables", {}).items())]
        },
        "annotations": {"list": []},
        "panels": _panels(written["rows"]),
    }


def _data_source() -> dict[str, Any]:
    """The data source, by default Grafana's default Prometheus."""
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "refresh": 1,
        "includeAll": False,
        "multi": False,
        "regex": "",
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": DATA_SOURCE,
        "query": {"query": query, "refId": name},
        "hide": 0,
        "refresh": 2,
        "sort": 1,
        "includeAll": False,
        "multi": False,
        "regex": "",
    }


def _panels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row from left to right, wrapped at the right edge."""
    made, ids, x, y, height = [], count(1), 0, 0, 0
    for row in rows:
        y, x = y + height, 0
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        made.append(
            {"id": next(ids), "type": "row", "title": row["title"], "collapsed": False, "gridPos": place, "panels": []}
        )
        y, height = y + 1, 0
        for panel in row["panels"]:
            width = panel.get("width", COLUMNS // 2)
            if x + width > COLUMNS:
                y, x, height = y + height, 0, 0
            shown = HEIGHTS.get(panel.get("type", ""), 8)
            made.append(_panel(panel, next(ids), {"h": shown, "w": width, "x": x, "y": y}))
            x, height = x + width, max(height, shown)
    return made


def _panel(panel: dict[str, Any], number: int, place: dict[str, int]) -> dict[str, Any]:
    kind = panel.get("type", "timeseries")
    is_now = kind in ("stat", "lights", "table")
    return {
        "id": number,
        "type": "stat" if kind == "lights" else kind,
        "title": panel["title"],
        "description": panel["about"],
        "datasource": DATA_SOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATA_SOURCE,
                "expr": query,
                "legendFormat": legend,
                "instant": is_now,
                "range": not is_now,
                **({"format": "table"} if kind == "table" else {}),
            }
            for index, (legend, query) in enumerate(panel["queries"].items())
        ],
        "fieldConfig": {"defaults": {"unit": panel["unit"], **_light(kind)}, "overrides": []},
        "options": _options(kind),
    }


def _light(kind: str) -> dict[str, Any]:
    if kind not in ("lights", "state-timeline"):
        return {"min": 0} if kind == "timeseries" else {}
    shown = {value: {"text": text, "color": color, "index": int(value)} for value, (text, color) in LIGHTS.items()}
    return {
        "mappings": [{"type": "value", "options": shown}],
        "links": [
            {"title": "The doctor's page", "url": f"{PAGES}/doctor/${{__field.labels.hop}}.md", "targetBlank": True}
        ],
    }


def _options(kind: str) -> dict[str, Any]:
    now = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "orientation": "auto"}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    return {
        "timeseries": {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}},
        "stat": {**now, "colorMode": "none", "graphMode": "none", "justifyMode": "auto", "textMode": "value"},
        "lights": {
            **now,
            "colorMode": "background",
            "graphMode": "none",
            "justifyMode": "auto",
            "textMode": "value_and_name",
        },
        "state-timeline": {
            "legend": legend,
            "tooltip": {"mode": "single", "sort": "none"},
            "mergeValues": True,
            "showValue": "never",
            "rowHeight": 0.9,
        },
        "table": {"showHeader": True, "cellHeight": "sm", "frameIndex": 0},
    }[kind]


if __name__ == "__main__":
    FILES.mkdir(exist_ok=True)
    for name in WRITTEN:
        (FILES / f"{name}.json").write_text(json.dumps(dashboard(name), indent=2, ensure_ascii=False) + "\n")
