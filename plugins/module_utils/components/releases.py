# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Decides whether a Helm release that this collection did not install may be changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """A release, as returned by chart_release.

    status:  status in helm; empty without a release. made_by: what installed it, for an error.
    begun:   an adoption was interrupted. changes: changes that the role would make.
    option:  variable that allows the role to adopt it; can be empty.
    """

    name: str
    namespace: str
    status: str = ""
    chart: str = ""
    owned: bool = False
    made_by: str = ""
    begun: bool = False
    changes: Sequence[str] = ()
    option: str = ""


def conflict(release: Release, *, adopt: bool) -> str:
    """The error before a change; empty if the role can continue."""
    can_adopt = release.begun or release.status == "deployed"
    if release.owned or not release.status or (adopt and can_adopt):
        return ""
    return (
        f"helm -> {release.name}: release {release.namespace}/{release.name} ({release.chart}, {release.status})"
        f" {release.made_by}. Nothing was changed. {_following(release)}"
    )


def _following(release: Release) -> str:
    helm, adopting = f"helm --namespace {release.namespace}", f"`-e {release.option}=true`"
    if release.begun:
        go_on = f", or continue: {adopting}" if release.option else ""
        return f"Adopting it was interrupted. Next: go back, `{helm} rollback {release.name}`{go_on}."
    if release.status != "deployed":
        return f"Next: repair it first, `{helm} history {release.name}`."
    adopted = f", or adopt it with those changes: {adopting}" if release.option else ""
    return (
        f"The role would change: {'; '.join(release.changes) or 'nothing'}. Next: use it as it is"
        f" (docs/existing-clusters.md), give the role another release or namespace{adopted}."
    )
