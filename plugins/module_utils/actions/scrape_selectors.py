# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Selects the scrape targets of each input of the rules, unless the user does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..autoscaling.backends import inputs_read
from ..autoscaling.inputs import INPUTS, Labels, select
from ..autoscaling.manifests import RuleOptions, selectors_of, shared_profiles
from ..autoscaling.spec import Autoscaler
from ..errors import HopError, enumeration
from ..hops import Hop
from ..kube.labels import is_of
from ..kube.objects import Manifest

Candidates = Mapping[str, Sequence[Mapping[str, str]]]


def detect_selectors(
    rules: RuleOptions, candidates: Candidates, autoscalers: Sequence[Autoscaler], live: Iterable[Manifest]
) -> RuleOptions:
    """The options with the labels of each input's targets; an input without any target stays without labels.

    A live rule keeps its targets as long as they exist, so a new job changes nothing. Without a rule, the only job of
    the only cluster that reports an input is selected. A shared rule of another inventory does not change.
    candidates: labels of the targets that report an input, by input. live: existing rules.
    Raises: HopError if several jobs or clusters report an input.
    """
    live = list(live)
    profiles = {profile.rule_name(namespace): profile for namespace, profile in shared_profiles(autoscalers)}
    theirs = [rule for rule in live if rule["metadata"]["name"] in profiles and not is_of(rule, rules.inventory)]
    theirs_read = {name for rule in theirs for name in profiles[rule["metadata"]["name"]].inputs}
    found: dict[str, Labels] = {}
    for name in sorted(inputs_read(autoscalers) - rules.selectors.keys()):
        noted = [selectors_of(rule) for rule in (theirs if name in theirs_read else live)]
        kept = next((selectors[name] for selectors in noted if name in selectors), {})
        found[name] = kept if name in theirs_read else _selected(name, kept, candidates.get(name, ()))
    return replace(rules, selectors={**rules.selectors, **found})


def _selected(name: str, kept: Labels, candidates: Sequence[Mapping[str, str]]) -> Labels:
    """Labels of the targets of an input. kept: those of a live rule; empty for none."""
    visible = {label: value for label, value in kept.items() if label in INPUTS[name].by}
    matching = [row for row in candidates if select(visible, row)]
    if kept and (len(matching) == 1 or not candidates or visible != kept):
        return kept
    possible = matching or candidates
    if len(possible) > 1:
        shown = [json.dumps(row) for row in possible]
        raise HopError(
            Hop.RULE,
            seen=f"targets with the labels {enumeration(shown)} report {INPUTS[name].title}, and a rule that used all "
            "of them would mix their values. Nothing was changed",
            fix=f"set prometheus.selectors.{name} to the labels of the right ones, {{{name}: {shown[0]}}} for example",
        )
    return dict(possible[0]) if possible else {}
