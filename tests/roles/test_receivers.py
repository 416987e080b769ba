"""Alertmanager's configuration from the options of role prometheus_stack, judged by Alertmanager's own amtool."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from charts_check import releases
from programs import program

RECEIVERS: list[dict[str, Any]] = [
    {
        "name": "on-call",
        "type": "slack",
        "severities": ["critical"],
        "channel": "#gpus",
        "secret": {"name": "slack", "key": "url"},
    },
    {
        "name": "team",
        "type": "mail",
        "to": "a@example.com",
        "from": "b@example.com",
        "smarthost": "mail.example.com:587",
        "secret": {"name": "smtp", "key": "password"},
    },
    {
        "name": "open-relay",
        "type": "mail",
        "to": "a@example.com",
        "from": "b@example.com",
        "smarthost": "localhost:25",
        "severities": ["info"],
    },
    {"name": "pager", "type": "webhook", "secret": {"name": "pager", "key": "url"}},
]
SECRETS = "/etc/alertmanager/secrets"


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    return releases({"told": {"prometheus_stack_receivers": RECEIVERS}})["told"]["kube-prometheus-stack"]["values"][
        "alertmanager"
    ]


@pytest.fixture
def file(values: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "alertmanager.yml"
    path.write_text(yaml.safe_dump(values["config"]))
    return path


def test_receivers_switch_alertmanager_on_and_their_secrets_are_files(values: dict[str, Any]) -> None:
    assert values["enabled"] is True
    assert values["alertmanagerSpec"]["secrets"] == ["slack", "smtp", "pager"]
    ways = {receiver["name"]: receiver for receiver in values["config"]["receivers"]}
    assert ways["on-call"]["slack_configs"][0]["api_url_file"] == f"{SECRETS}/slack/url"
    assert ways["team"]["email_configs"][0]["auth_password_file"] == f"{SECRETS}/smtp/password"
    assert "auth_username" not in ways["open-relay"]["email_configs"][0]
    assert ways["pager"]["webhook_configs"][0]["url_file"] == f"{SECRETS}/pager/url"


def test_alertmanager_takes_the_configuration(file: Path) -> None:
    done = subprocess.run([program("amtool"), "check-config", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("severity", "told"),
    [("critical", "on-call,team,pager"), ("warning", "team,pager"), ("info", "open-relay"), ("none", "null")],
)
def test_each_severity_reaches_those_who_asked_for_it(file: Path, severity: str, told: str) -> None:
    command = [
        program("amtool"),
        "config",
        "routes",
        "test",
        "--config.file",
        file,
        f"severity={severity}",
        "alertname=GpuHot",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == told
