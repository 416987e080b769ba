# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Creates dashboards in the format of Grafana's editor, from those of roles/gpu_dashboards/files/dashboards.yml.

That file has what differs between panels. Each dashboard becomes a ConfigMap, which Grafana's sidecar loads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

Object = dict[str, Any]
Written = Mapping[str, Any]
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PAGES = "https://github.com/kubegpu/autoscale/tree/main/docs"
COLUMNS = 24
HEIGHTS = {"stat": 4, "lights": 4}
LIGHTS = {"0": ("well", "green"), "1": ("warning", "yellow"), "2": ("broken", "red")}


def config_maps(dashboards: Mapping[str, Written], metadata: Mapping[str, Any]) -> list[Object]:
    """One per dashboard, by name. metadata: namespace, labels and annotations of all."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"kubegpu-dashboard-{name}", **metadata},
            "data": {f"kubegpu-{name}.json": f"{_json(dashboard(name, dashboards[name]))}\n"},
        }
        for name in sorted(dashboards)
    ]


def _json(value: Object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def dashboard(name: str, written: Written) -> Object:
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


def _data_source() -> Object:
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


def _variable(name: str, query: str) -> Object:
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


def _panels(rows: Sequence[Written]) -> list[Object]:
    """Each row from left to right, wrapped at the right edge."""
    made: list[Object] = []
    ids, x, y, height = count(1), 0, 0, 0
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


def _panel(panel: Written, number: int, place: dict[str, int]) -> Object:
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


def _light(kind: str) -> Object:
    if kind not in ("lights", "state-timeline"):
        return {"min": 0} if kind == "timeseries" else {}
    shown = {value: {"text": text, "color": color, "index": int(value)} for value, (text, color) in LIGHTS.items()}
    return {
        "mappings": [{"type": "value", "options": shown}],
        "links": [
            {"title": "The doctor's page", "url": f"{PAGES}/doctor/${{__field.labels.hop}}.md", "targetBlank": True}
        ],
    }


def _options(kind: str) -> Object:
    now = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "orientation": "auto"}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    options: dict[str, Object] = {
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
    }
    return options[kind]
