"""What the exporter is given for a scrape each second on a node of eight GPUs."""

from __future__ import annotations

from role_values import RoleValues


def test_the_exporter_has_room_for_a_scrape_each_second() -> None:
    """By the chart's own 200m and 512Mi it is throttled, and killed (NVIDIA/dcgm-exporter#599)."""
    values = RoleValues("dcgm_exporter", {}, {})["__dcgm_exporter_values"]
    env = {row["name"]: row["value"] for row in values["extraEnv"]}

    assert values["resources"]["limits"] == {"cpu": "2", "memory": "2Gi"}
    assert values["resources"]["requests"] == {"cpu": "200m", "memory": "512Mi"}
    # What its Go runtime keeps to. Go 1.25 and later look at the limit of processors, not at that of memory.
    assert (env["GOMAXPROCS"], env["GOMEMLIMIT"]) == ("2", "1024MiB")
    assert values["serviceMonitor"]["scrapeTimeout"] == values["serviceMonitor"]["interval"]
