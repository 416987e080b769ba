# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks of a proposal against KEDA and existing ScaledObjects. They run only before a change."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...autoscaling.backends import needs_scaled_object
from ...autoscaling.manifests import SCALED_OBJECT
from ...autoscaling.scaled_object import diverging_fields, hpa_name, reads_totals
from ...autoscaling.spec import Autoscaler
from ...diagnosis.check import CheckResult, FindingTypes, check
from ...errors import enumeration
from ...hops import Hop
from ...kube.labels import is_managed, is_of, maker
from ...kube.objects import Manifest, owners
from ..state.cluster import State

_SPEC = FindingTypes(Hop.SPEC)

# HPAConfigurableTolerance is enabled by default from this version on.
_TOLERANCE_MINOR = 35

SPEC_KEDA_MISSING = _SPEC.error(
    "SPEC_KEDA_MISSING",
    cause="KEDA is not installed: its operator creates the HPA of each ScaledObject",
    fix="run the role keda, which installs KEDA; or set backend to adapter",
    before="await",
)


@check("ScaledObjects are served", SPEC_KEDA_MISSING)
def keda_is_installed(state: State) -> Iterator[CheckResult]:
    if not state.proposal.is_keda_served:
        for autoscaler, _live in _by_keda(state):
            seen = "backend is keda, and the cluster does not serve the kind ScaledObject"
            yield CheckResult(SPEC_KEDA_MISSING, f"autoscaler {autoscaler}", seen)


SPEC_SCALED_OBJECT_OF_ANOTHER = _SPEC.error(
    "SPEC_SCALED_OBJECT_OF_ANOTHER",
    cause="the module does not change a ScaledObject that it did not create for this inventory",
    fix="set adopt: true to adopt it, delete it, or give the autoscaler another name and target",
    before="refuse",
)


@check("no ScaledObject of that name has another owner", SPEC_SCALED_OBJECT_OF_ANOTHER)
def own_scaled_objects(state: State) -> Iterator[CheckResult]:
    for autoscaler, live in _by_keda(state):
        if live and not autoscaler.adopt and not is_of(live, state.proposal.inventory):
            seen = f"{_title(live)} {maker(live)}"
            yield CheckResult(SPEC_SCALED_OBJECT_OF_ANOTHER, f"autoscaler {autoscaler}", seen)


SPEC_SCALED_OBJECT_FIELDS = _SPEC.error(
    "SPEC_SCALED_OBJECT_FIELDS",
    cause="with these fields KEDA changes replicas by other rules than the autoscaler's, and the module does not "
    "remove fields that it does not set",
    fix="remove them: kubectl -n {namespace} edit scaledobject {name}; or set backend to adapter",
    before="refuse",
)


@check("existing ScaledObjects scale by the autoscaler's rules", SPEC_SCALED_OBJECT_FIELDS)
def scaled_objects_are_plain(state: State) -> Iterator[CheckResult]:
    for autoscaler, live in _by_keda(state):
        if live and (fields := diverging_fields(live)):
            yield CheckResult(
                SPEC_SCALED_OBJECT_FIELDS,
                f"autoscaler {autoscaler}",
                f"{_title(live)} sets {enumeration(fields)}",
                template_vars={"namespace": autoscaler.namespace, "name": autoscaler.name},
            )


SPEC_SCALED_OBJECT_RENAMES = _SPEC.warning(
    "SPEC_SCALED_OBJECT_RENAMES",
    cause="KEDA deletes that HPA and creates one with the autoscaler's name, which does not know the recommendations "
    "of the stabilization window",
    fix="adopt it while the load is steady; no replica changes as long as the metrics ask for the current number",
    before="warn",
)


@check("an adopted ScaledObject keeps its HPA", SPEC_SCALED_OBJECT_RENAMES)
def adopted_hpas_keep_their_name(state: State) -> Iterator[CheckResult]:
    for autoscaler, live in _by_keda(state):
        if live and (name := hpa_name(live)) != autoscaler.name:
            seen = f"{_title(live)} has HPA {name}"
            yield CheckResult(SPEC_SCALED_OBJECT_RENAMES, f"autoscaler {autoscaler}", seen)


SPEC_HPA_OF_SCALED_OBJECT = _SPEC.error(
    "SPEC_HPA_OF_SCALED_OBJECT",
    cause="KEDA overwrites every change of an HPA that a ScaledObject owns",
    fix="adopt the ScaledObject with its name, backend: keda and adopt: true; or delete it, or give the autoscaler "
    "another name and target. If it cannot be listed, grant that permission (docs/rights.yml)",
    before="refuse",
)


@check("no HPA of that name belongs to another ScaledObject", SPEC_HPA_OF_SCALED_OBJECT)
def hpa_of_scaled_object(state: State) -> Iterator[CheckResult]:
    """Autoscalers of the adapter release ScaledObjects of this collection, but no others."""
    for autoscaler in state.proposal.autoscalers:
        hpa = state.proposal.hpas.get(autoscaler.key)
        for owner in [name for kind, name in owners(hpa) if kind == SCALED_OBJECT] if hpa else ():
            live = state.proposal.scaled_objects.get((autoscaler.namespace, owner))
            is_own = (
                live is not None and owner == autoscaler.name and (needs_scaled_object(autoscaler) or is_managed(live))
            )
            if not is_own:
                known = "" if live or state.proposal.is_keda_known else ", which this user has no permission to list"
                seen = f"its HPA belongs to ScaledObject {autoscaler.namespace}/{owner}{known}"
                yield CheckResult(SPEC_HPA_OF_SCALED_OBJECT, f"autoscaler {autoscaler}", seen)


SPEC_KEDA_TOLERANCE = _SPEC.error(
    "SPEC_KEDA_TOLERANCE",
    cause="KEDA's HPA reads a number of replicas; with the default tolerance of 10 % it ignores steps of one replica",
    fix="upgrade Kubernetes to 1.35, which keeps the field tolerance; or set backend to adapter",
    before="refuse",
)


@check("the HPA keeps its tolerance", SPEC_KEDA_TOLERANCE)
def tolerance_is_kept(state: State) -> Iterator[CheckResult]:
    """An unknown version does not fail."""
    version = re.match(r"v1\.(\d+)", state.server_version or "")
    if not version or int(version[1]) >= _TOLERANCE_MINOR:
        return
    for autoscaler, _live in _by_keda(state):
        if not reads_totals(autoscaler):
            seen = f"backend is keda, and the API server is {state.server_version}"
            yield CheckResult(SPEC_KEDA_TOLERANCE, f"autoscaler {autoscaler}", seen)


SPEC_KEDA_UNKNOWN = _SPEC.warning(
    "SPEC_KEDA_UNKNOWN",
    cause="a second autoscaler of KEDA would not be detected",
    fix="grant that permission (docs/rights.yml); this has no effect if KEDA is not installed",
    before="warn",
)
SPEC_KEDA_HIDDEN = _SPEC.error(
    "SPEC_KEDA_HIDDEN",
    cause="without it an existing ScaledObject would be overwritten",
    fix="grant that permission (docs/rights.yml)",
    before="refuse",
)


@check("ScaledObjects can be read", SPEC_KEDA_UNKNOWN, SPEC_KEDA_HIDDEN)
def scaled_objects_are_known(state: State) -> Iterator[CheckResult]:
    if not state.proposal.is_keda_known:
        finding_type = SPEC_KEDA_HIDDEN if any(_by_keda(state)) else SPEC_KEDA_UNKNOWN
        yield CheckResult(finding_type, "ScaledObjects", "the user may not list scaledobjects of keda.sh")


def _by_keda(state: State) -> Iterator[tuple[Autoscaler, Manifest | None]]:
    """The autoscalers that need a ScaledObject, each with the existing one of that name."""
    for autoscaler in state.proposal.autoscalers:
        if needs_scaled_object(autoscaler):
            yield autoscaler, state.proposal.scaled_objects.get(autoscaler.key)


def _title(scaled_object: Manifest) -> str:
    metadata = scaled_object["metadata"]
    return f"ScaledObject {metadata['namespace']}/{metadata['name']}"
