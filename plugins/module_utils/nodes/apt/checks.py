# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks why packages cannot be installed."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...hops import Hop
from ..findings import seen_on
from .offer import AptOffer
from .repository import AptRepository

_APT = FindingTypes(Hop.APT)

COMPONENT_MISSING = _APT.error(
    "APT_COMPONENT_MISSING",
    "apt rejects two sources of one repository with different keys, so the existing source is used",
    "on the node: add the component {components} to {files}, or remove that source",
    before="refuse",
)


@check("an existing source has the components", COMPONENT_MISSING)
def existing_source_is_complete(repository: AptRepository) -> Iterator[CheckResult]:
    if repository.elsewhere and not repository.is_reused:
        files = ", ".join(dict.fromkeys(source.file for source in repository.elsewhere))
        components = ", ".join(repository.needs)
        seen = f"has {repository.uri} {repository.apt.suite} in {files}, without the component {components}"
        yield seen_on(repository.host, COMPONENT_MISSING, seen, files=files, components=components)


HEADERS_MISSING = _APT.error(
    "APT_HEADERS_MISSING",
    "the archive removes the headers of kernels that it has replaced",
    "on the node: `apt-get update`, install the newest linux-image as `apt list linux-image*` shows it, boot it, and "
    "run this again",
    before="refuse",
)


@check("the headers of the kernel are available", HEADERS_MISSING)
def headers_are_available(offer: AptOffer) -> Iterator[CheckResult]:
    if headers := ", ".join(offer.headers):
        seen = f"would get {headers}, and none of its own repositories has it"
        yield seen_on(offer.host, HEADERS_MISSING, seen)


VERSION_MISSING = _APT.error(
    "APT_VERSION_MISSING",
    "the repository has other versions",
    "set {role}_version to an available version",
    before="refuse",
)
PACKAGE_MISSING = _APT.error(
    "APT_PACKAGE_MISSING",
    "the repository does not have the packages, or apt cannot read it",
    "on the node, `curl -I` that address, and `apt-get update`; check {role}_version",
    before="refuse",
)


@check("apt finds the packages", VERSION_MISSING, PACKAGE_MISSING)
def packages_are_available(offer: AptOffer) -> Iterator[CheckResult]:
    for missing in offer.missing:
        where = missing.uri or "its repositories"
        offered = ", ".join(missing.offered) or "none of that name"
        failures = f" ({'; '.join(missing.failures)})" if missing.failures else ""
        seen = f"would get {', '.join(missing.packages)} from {where}, and apt finds {offered} there{failures}"
        finding_type = VERSION_MISSING if missing.offered else PACKAGE_MISSING
        yield seen_on(offer.host, finding_type, seen, role=missing.role)


REPOSITORY = (existing_source_is_complete,)
OFFER = (headers_are_available, packages_are_available)
