# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans for apt: for one set of packages, and for all packages of the roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_TEXT = {"type": "str", "required": True}
_RESULT = {"type": "dict", "default": {}}
SURVEY: dict[str, Any] = {
    "sources": {"type": "list", "elements": "dict", "default": []},
    "found": _RESULT,
    "packages": _RESULT,
    "pin": _RESULT,
    "before": _RESULT,
    "check_mode": {"type": "bool", "default": False},
}
_MIRROR: dict[str, Any] = {
    "mirror": {"type": "str", "default": ""},
    "mirror_key": {"type": "str", "default": ""},
    "proxy": {"type": "str", "default": ""},
}
APT: dict[str, Any] = {
    "set": {"type": "dict", "required": True},
    "paths": {
        "type": "dict",
        "required": True,
        "options": dict.fromkeys(("key", "source", "pin", "before", "config"), _TEXT),
    },
    **_MIRROR,
    "survey": {"type": "dict", "default": {}, "options": SURVEY},
}
APT_OFFER: dict[str, Any] = {
    "plans": {"type": "dict", "required": True},
    **_MIRROR,
    "paths": {"type": "dict", "default": {}},
    "sources": {"type": "list", "elements": "dict", "default": []},
    "answer": _RESULT,
}


def apt_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as APT has them."""
    return _plan(AptRepository(host, _options(params), _survey(params["survey"])))


def _options(params: Mapping[str, Any]) -> AptOptions:
    return AptOptions(
        apt=AptSet.of(params["set"]),
        paths=AptPaths(**params["paths"]),
        mirror=params["mirror"],
        mirror_key=params["mirror_key"],
        proxy=params["proxy"],
    )


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


def _survey(read: Mapping[str, Any]) -> AptSurvey:
    return AptSurvey(
        sources=_sources(read["sources"]),
        found=Found.of(read["found"]),
        packages=Answer.of(read["packages"]),
        is_ours=read["pin"].get("exists", False),
        before=installed_before(read["before"]),
        pretends=read["check_mode"],
    )


def _sources(rows: Iterable[Mapping[str, Any]]) -> tuple[Source, ...]:
    return tuple(Source(row["file"], row["uri"], row["suite"], tuple(row.get("components") or ())) for row in rows)


def apt_offer_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as APT_OFFER has them."""
    plans = params["plans"]
    brings = {role: (plan.get("packages") or {}).get("sources") or [] for role, plan in plans.items()}
    failed = frozenset(role for role, plan in plans.items() if plan.get("refused"))
    offer = AptOffer(host, brings, params["mirror"], failed, params["answer"].get("result") or {})
    return {
        "refused": errors(OFFER, offer),
        "broken": [],
        "notices": [],
        "packages": {},
        "files": {},
        "steps": {"ask": bool(offer.repositories)},
        "repositories": offer.repositories,
        "complete": [*_complete(host, params, brings.values(), offer.answer)] if offer.answer else [],
    }


def _complete(
    host: Host, params: Mapping[str, Any], brings: Iterable[Sequence[Mapping[str, Any]]], answer: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Sets of packages that a server already has, with all their files, and the plans of doing nothing.

    In the paths, `%s` stands for the name of a set.
    """
    survey = AptSurvey(
        sources=_sources(params["sources"]),
        found=Found.of(answer),
        packages=Answer(0, tuple(f"{package} installed" for package in answer.get("installed") or ())),
    )
    for apt in (apt for sets in brings for apt in sets):
        paths = {use: path % apt["name"] for use, path in params["paths"].items()}
        repository = AptRepository(host, _options({**params, "set": apt, "paths": paths}), survey)
        if not (errors(REPOSITORY, repository) or repository.alters or repository.installs):
            yield {"set": apt, "plan": _plan(repository)}
