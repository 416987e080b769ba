"""The alerts on a site that works: all are loaded, what they are made of is there, and none of them fires."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from test_site import SEEN_S, kubectl, series
from testinfra.host import Host
from waiting import eventually

testinfra_hosts = ["ansible://kube_control_plane"]

FILES = Path(__file__).parents[3] / "roles" / "gpu_alerts" / "files"
RULES = [
    rule
    for path in FILES.glob("*.yml")
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
# The lab's GPUs have no sensor of their memory, no ECC, and no counter of violations.
NOT_IN_LAB = {
    "gpu:memory_temperature:celsius",
    "gpu:ecc_uncorrectable:total",
    "gpu:remapped_rows_uncorrectable:total",
    "gpu:row_remap_failure:bool",
    "gpu:thermal_violation:total",
}
# Twice as long as an alert of faults looks back, GpuRuleFails for one.
CALM_S = 240
RECORDED = sorted({rule["record"] for rule in RULES if "record" in rule} - NOT_IN_LAB)


def test_the_operator_has_taken_each_rule(host: Host) -> None:
    found = kubectl(host, "--namespace monitoring get prometheusrules --output=json")["items"]
    taken = [rule for manifest in found for group in manifest["spec"]["groups"] for rule in group["rules"]]

    assert {rule["alert"] for rule in taken if "alert" in rule} == {rule["alert"] for rule in RULES if "alert" in rule}


def test_what_alerts_are_made_of_is_recorded(host: Host) -> None:
    """Asked in one query: each takes a second by itself."""
    recorded = "|".join(RECORDED)
    query = quote(f'count by (__name__) ({{__name__=~"{recorded}"}})')

    def missing() -> list[str]:
        found = {sample["metric"]["__name__"] for sample in series(host, query)}
        return [record for record in RECORDED if record not in found]

    assert eventually(missing, lambda records: not records, SEEN_S) == []


def test_nothing_fires_and_each_light_is_green(host: Host) -> None:
    """What the faults before have set off ends by itself, within the windows that the alerts look at."""
    hops = {rule["labels"]["hop"] for rule in RULES if rule.get("record") == "hop:kubegpu_chain:state"}
    ends = time.monotonic() + CALM_S
    while (fires := firing(host)) and time.monotonic() < ends:
        time.sleep(5)

    assert fires == []
    lights = eventually(
        lambda: {sample["metric"]["hop"] for sample in series(host, "hop:kubegpu_chain:state")},
        lambda lights: lights == hops,
        SEEN_S,
    )
    assert lights == hops


def firing(host: Host) -> list[dict[str, Any]]:
    """Alerts, and lights that are not green: a light follows its alert by an evaluation."""
    alerts = series(host, "ALERTS{alertname=~%22Gpu.*%22,alertstate=%22firing%22}")
    return [sample["metric"] for sample in [*alerts, *series(host, "hop:kubegpu_chain:state%3E0")]]
