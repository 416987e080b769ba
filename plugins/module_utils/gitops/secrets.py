# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What must not lie in a repository."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# Names that hold a secret itself. `existingSecret`, `passwordKey` and `auth_password_file` only say where one is.
_NAME = re.compile(
    r"(password|passwd|passphrase|token|api_?key|secret_?key|access_?key|private_?key|credentials)$", re.I
)
# Slack's address is its secret.
_WHOLE = {"api_url"}
_TEXT = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\w+://[^/\s:@]+:[^/\s@]+@")


def secrets_in(value: Any, path: str = "") -> Iterator[str]:
    """Path of each text that is a secret: by its name, or because it is a private key or an address with a password."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _named(str(name), inner, f"{path}.{name}" if path else str(name))
        if isinstance(value.get("name"), str) and "value" in value:  # a variable of a container
            yield from _named(value["name"], value["value"], f"{path} {value['name']}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from secrets_in(inner, f"{path}[{number}]")
    elif isinstance(value, str) and _TEXT.search(value):
        yield path


def _named(name: str, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str):
        if value and (name in _WHOLE or _NAME.search(name) or _TEXT.search(value)):
            yield path
    else:
        yield from secrets_in(value, path)
