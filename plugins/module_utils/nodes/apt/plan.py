# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans for apt: for one set of packages, and for all packages of the roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...formats.plain import plain
from ..findings import errors
from ..survey.files import Found
from ..survey.host import Host
from ..survey.program_output import Answer
from .checks import OFFER, REPOSITORY
from .offer import AptOffer
from .repository import AptOptions, AptPaths, AptRepository, AptSurvey, Source
from .sources import AptSet, installed_before


def apt_plan(options: AptOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, `set` in the format of AptSet, its `paths`, and results of the tasks that have run."""
    read = AptSurvey(
        sources=_sources(survey.get("sources", ())),
        found=Found.of(survey.get("found")),
        packages=Answer.of(survey.get("packages")),
        is_ours=survey.get("pin", {}).get("exists", False),
        before=installed_before(survey.get("before")),
        pretends=survey.get("check_mode", False),
    )
    apt, paths = AptSet.of(survey["set"]), AptPaths(**survey["paths"])
    return _plan(AptRepository(Host.of(survey["host"]), options, apt, paths, read))


def _plan(repository: AptRepository) -> dict[str, Any]:
    return {
        "refused": errors(REPOSITORY, repository),
        "broken": [],
        "notices": [],
        "packages": _packages(repository),
        "files": plain(
            {
                "differing": [vars(file) for file in repository.differing],
                "unwanted": repository.unwanted,
                "read": repository.read,
                "record": repository.record,
            }
        ),
        "key": {"url": repository.key_url, "fingerprint": repository.apt.fingerprint},
        "steps": {
            "bring_key": repository.brings_key,
            "write": repository.changes,
            "change": repository.alters,
            "install": repository.installs,
            "update_cache": not repository.is_known and not repository.changes,  # writing files has updated it
            "pretend": repository.pretended,
            "source_is_new": repository.paths.source not in repository.survey.found,
        },
    }


def _packages(repository: AptRepository) -> dict[str, list[str]]:
    """purged, kept: packages of the set, at its removal."""
    return {
        "asked": [*repository.apt.asked],
        "missing": [*repository.missing],
        "purged": [*repository.purged],
        "kept": [*repository.kept],
    }


def _sources(rows: Iterable[Mapping[str, Any]]) -> tuple[Source, ...]:
    return tuple(Source(row["file"], row["uri"], row["suite"], tuple(row.get("components") or ())) for row in rows)


def apt_offer_plan(options: AptOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, `plans` of roles, `paths` with `%s` for the name of a set, apt's `sources` and its `answer`."""
    host, plans = Host.of(survey["host"]), survey["plans"]
    brings = {role: (plan.get("packages") or {}).get("sources") or [] for role, plan in plans.items()}
    failed = frozenset(role for role, plan in plans.items() if plan.get("refused"))
    answer = survey.get("answer", {}).get("result") or {}
    offer = AptOffer(host, brings, options.apt_mirror, failed, answer)
    read = AptSurvey(
        sources=_sources(survey.get("sources", ())),
        found=Found.of(answer),
        packages=Answer(0, tuple(f"{package} installed" for package in answer.get("installed") or ())),
    )
    sets = [apt for of_role in brings.values() for apt in of_role] if answer else []
    repositories = [
        (apt, AptRepository(host, options, AptSet.of(apt), _paths(survey["paths"], apt["name"]), read)) for apt in sets
    ]
    return {
        "refused": errors(OFFER, offer),
        "broken": [],
        "notices": [],
        "packages": {},
        "files": {},
        "steps": {"ask": bool(offer.repositories)},
        "repositories": offer.repositories,
        "complete": [{"set": apt, "plan": _plan(found)} for apt, found in repositories if _is_complete(found)],
    }


def _paths(of_all: Mapping[str, str], name: str) -> AptPaths:
    return AptPaths(**{use: path % name for use, path in of_all.items()})


def _is_complete(repository: AptRepository) -> bool:
    """Whether a server already has all packages, with all their files, so that nothing has to be done."""
    return not (errors(REPOSITORY, repository) or repository.alters or repository.installs)
