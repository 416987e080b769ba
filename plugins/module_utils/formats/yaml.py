# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from contextlib import suppress
from typing import Any

with suppress(ImportError):  # it comes with the kubernetes library, without which nothing is read at all
    import yaml


def from_yaml(text: str) -> Any:
    """Raises: ValueError with the parser's words and place if it is no YAML."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as err:
        raise ValueError(" ".join(str(err).split())) from err
