# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Creates Alertmanager's routes and receivers from those of an inventory.

A receiver has a `name`, a `type`, the `severities` that it gets, and a `secret` with the password or the URL. The
operator mounts that Secret, so no file and no log of this collection contains its value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Receiver = Mapping[str, Any]
_NOBODY = "null"
_DEFAULT_SEVERITIES = ("critical", "warning")
_NEEDS = {"mail": ("to", "from", "smarthost"), "slack": ("secret",), "webhook": ("secret",)}
# Templates of Alertmanager.
_TITLE = "[{{ .Status | toUpper }}] {{ .CommonAnnotations.summary }}"
_TEXT = (
    "{{ range .Alerts }}{{ .Annotations.summary }}: {{ .Annotations.description }} {{ .Annotations.runbook_url }}\n"
    "{{ end }}"
)


def receiver_faults(receivers: Sequence[Receiver]) -> list[str]:
    """Options that Alertmanager would reject: its operator would then write no configuration at all."""
    names = Counter(str(receiver["name"]) for receiver in receivers)
    return [
        *(
            f"{receiver['name']} ({receiver['type']}) has no {option}"
            for receiver in receivers
            for option in _NEEDS[receiver["type"]]
            if not receiver.get(option)
        ),
        *(f"two receivers are called {name}" for name, count in sorted(names.items()) if count > 1),
        *([f"the name {_NOBODY} is reserved for alerts that are sent to no receiver"] if _NOBODY in names else []),
    ]


def alertmanager_values(receivers: Sequence[Receiver]) -> dict[str, Any]:
    """Values of `alertmanager` in the chart kube-prometheus-stack; empty without a receiver."""
    if not receivers:
        return {}
    secrets = dict.fromkeys(str(receiver["secret"]["name"]) for receiver in receivers if receiver.get("secret"))
    return {
        "alertmanagerSpec": {"secrets": list(secrets)},
        "config": {
            "route": {
                "receiver": _NOBODY,
                "group_by": ["alertname", "namespace", "node"],
                "routes": [_route(receiver) for receiver in receivers],
            },
            "receivers": [{"name": _NOBODY}, *(_receiver(receiver) for receiver in receivers)],
        },
    }


def severities(receiver: Receiver) -> list[str]:
    """A list, or text with commas from the command line."""
    given = receiver.get("severities") or _DEFAULT_SEVERITIES
    texts = given.split(",") if isinstance(given, str) else given
    return [str(text).strip() for text in texts]


def _route(receiver: Receiver) -> dict[str, Any]:
    pattern = "|".join(map(re.escape, severities(receiver)))
    return {"receiver": receiver["name"], "matchers": [f'severity =~ "{pattern}"'], "continue": True}


def _receiver(receiver: Receiver) -> dict[str, Any]:
    makers = {"mail": _mail, "slack": _slack, "webhook": _webhook}
    return {"name": receiver["name"], **makers[receiver["type"]](receiver)}


def _file(receiver: Receiver) -> str:
    """Path at which the operator mounts the receiver's secret; can be empty."""
    secret = receiver.get("secret")
    return f"/etc/alertmanager/secrets/{secret['name']}/{secret['key']}" if secret else ""


def _mail(receiver: Receiver) -> dict[str, Any]:
    config: dict[str, Any] = {key: receiver.get(key) or "" for key in ("to", "from", "smarthost")}
    config["send_resolved"] = True
    if file := _file(receiver):
        config |= {
            "auth_username": receiver.get("username") or receiver.get("from") or "",
            "auth_password_file": file,
        }
    return {"email_configs": [config]}


def _slack(receiver: Receiver) -> dict[str, Any]:
    config = {"api_url_file": _file(receiver), "send_resolved": True, "title": _TITLE, "text": _TEXT}
    if channel := receiver.get("channel"):
        config["channel"] = channel
    return {"slack_configs": [config]}


def _webhook(receiver: Receiver) -> dict[str, Any]:
    return {"webhook_configs": [{"url_file": _file(receiver), "send_resolved": True}]}
