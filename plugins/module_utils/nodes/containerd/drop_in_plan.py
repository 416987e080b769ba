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
from .drop_in import DropIn, DropInSurvey, Wanted
from .drop_in_checks import BEFORE
from .plan import paths_of


def drop_in_plan(survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, `drop_in` in the format of Wanted, `paths` of files, and results of the tasks that have run."""
    read = DropInSurvey(
        found=Found.of(survey.get("found")),
        main=slurped(survey.get("main")),
        latest=Answer.of(survey.get("latest")),
        later=tuple(Found.of(survey.get("later")).entries),
    )
    drop_in = DropIn(Host.of(survey["host"]), Wanted(**survey["drop_in"]), paths_of(survey["paths"]), read)
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
