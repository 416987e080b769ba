"""Secrets to plant in options, in each shape in which values, objects and addresses hold one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

PLANT = "Pl4nted-Secret"
LOGIN = f"https://reader:{PLANT}@metrics.example:9443"
# Of free values, by what they are.
HOLDERS: dict[str, dict[str, Any]] = {
    "password": {"grafana": {"adminPassword": PLANT}},
    "webhook": {"receivers": [{"slack_configs": [{"api_url": f"https://chat.example/{PLANT}"}]}]},
    "routing key": {"receivers": [{"pagerduty_configs": [{"routing_key": PLANT}]}]},
    "user key": {"receivers": [{"pushover_configs": [{"user_key": PLANT}]}]},
    "client secret": {"auth.generic_oauth": {"client_secret": PLANT}},
    "variable": {"env": [{"name": "DB_PASSWORD", "value": PLANT}]},
    "address": {"remoteWrite": [{"url": LOGIN}]},
    "connection string": {"database": f"Server=db;User Id=me;Password={PLANT};Timeout=5"},
    "argument": {"extraArguments": [f"--password={PLANT}"]},
    "arguments": {"extraArguments": ["--token", PLANT]},
    "credentials": {"credentials": {"reader": PLANT}},
    "header": {"headers": {"Authorization": f"Bearer {PLANT}"}},
    "block": {"config": f"global:\n  smtp_auth_password: {PLANT}\n"},
}


def each_holder(kind: str, elements: str = "dict") -> Iterator[tuple[str, Any]]:
    """Values of an option of this type that hold the secret."""
    if kind in ("dict", "raw"):
        yield from HOLDERS.items()
        yield "Secret", {"kind": "Secret", "metadata": {"name": "login"}, "stringData": {"user": PLANT}}
    elif kind == "list" and elements == "dict":
        yield from ((name, [value]) for name, value in HOLDERS.items())
    elif kind == "list" and elements == "str":
        yield "argument", [f"--password={PLANT}"]
        yield "address", [LOGIN]
    elif kind == "str":
        yield "address", LOGIN


@contextmanager
def watched_processes() -> Iterator[list[str]]:
    """Command lines of this machine that have the secret, as long as the block runs: whoever looks can read them."""
    seen: list[str] = []
    ended = Event()

    def look() -> None:
        while not ended.wait(0.005):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    seen.extend([line] * (PLANT in line))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
