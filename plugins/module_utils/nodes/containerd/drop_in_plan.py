# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plan of one drop-in of containerd, from its settings and what was read on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...formats.plain import plain
from ..findings import errors
from ..survey.files import Found, slurped
from ..survey.host import Host
from ..survey.program_output import Answer
from .drop_in import DropIn, DropInOptions, DropInSurvey
from .drop_in_checks import BEFORE
from .plan import PATHS, paths_of

OPTIONS: dict[str, Any] = {
    "state": {"type": "str", "required": True, "choices": ["present", "absent"]},
    "name": {"type": "str", "required": True},
    "settings": {"type": "dict", "default": {}},
    "config": {"type": "dict", "default": {}},
}
_RESULT = {"type": "dict", "default": {}}
SURVEY: dict[str, Any] = {"found": _RESULT, "main": _RESULT, "latest": _RESULT, "later": _RESULT}
DROP_IN: dict[str, Any] = {
    "options": {"type": "dict", "required": True, "options": OPTIONS},
    "paths": {"type": "dict", "required": True, "options": PATHS},
    "survey": {"type": "dict", "required": True, "options": SURVEY},
}


def drop_in_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as DROP_IN has them."""
    read = params["survey"]
    survey = DropInSurvey(
        found=Found.of(read["found"]),
        main=slurped(read["main"]),
        latest=Answer.of(read["latest"]),
        later=tuple(Found.of(read["later"]).entries),
    )
    drop_in = DropIn(host, DropInOptions(**params["options"]), paths_of(params["paths"]), survey)
    refused = errors(BEFORE, drop_in) if drop_in.is_wanted else []
    writes = not refused and drop_in.writes
    return {
        "refused": refused,
        "broken": [],
        "notices": [],
        "packages": {},
        "files": plain(_written(drop_in) if drop_in.is_wanted else _removed(drop_in)),
        "later_versions": drop_in.later_versions,
        "steps": _steps(drop_in) | {"write": writes, "restart": not refused and drop_in.restarts},
    }


def _written(drop_in: DropIn) -> dict[str, Any]:
    return {
        "packaged": drop_in.paths.packaged,
        "folder": drop_in.paths.drop_ins,
        "main": [vars(drop_in.main_file)] if drop_in.writes_main else [],
        "drop_in": vars(drop_in.file),
    }


def _removed(drop_in: DropIn) -> dict[str, Any]:
    """folders: removed if they are empty."""
    return {
        "packaged": drop_in.paths.packaged,
        "main": [vars(drop_in.main_file) | {"content": drop_in.main.without_import}]
        if drop_in.takes_import_out
        else [],
        "removed": drop_in.removed,
        "folders": (drop_in.paths.drop_ins, drop_in.paths.config_folder),
    }


def _steps(drop_in: DropIn) -> dict[str, bool]:
    return {
        "ask_latest": drop_in.asks_latest,
        "keep_packaged": drop_in.keeps_packaged,
        "bring_packaged_back": drop_in.brings_packaged_back,
        "has_secrets": drop_in.has_secrets,
    }
