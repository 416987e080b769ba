# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import re
from urllib.parse import unquote

from ..errors import HopError
from ..hops import Hop
from .errors import ANONYMOUS, ApiError

# Source: k8s.io/apiserver pkg/endpoints/request/requestinfo.go
_RESOURCE = re.compile(
    r"(?P<method>[A-Z]+) /(?:api|apis/(?P<group>[^/]+))/[^/]+"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?P<subresource>/[^/]+)?(?:/.+)?)?"
)


# A ClusterRole, which users of an installed collection do not have in their folder.
RIGHTS = "https://github.com/kubegpu/autoscale/blob/main/docs/rights.yml"
# The authorizer's message. Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go
_NAMED = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_VERBS = {"PATCH": "patch", "POST": "create", "PUT": "update", "DELETE": "delete"}


def right_to(request: str) -> str:
    """The permission for a request in RBAC's terms: verb, resource, API group and namespace.

    request: in the format of ApiError, ``GET /apis/apps/v1/namespaces/ml/deployments/chat/scale``.
    """
    found = _RESOURCE.fullmatch(unquote(request))
    if not found:
        return request.lower().replace(" ", " path ", 1)
    verb = _VERBS.get(found["method"]) or ("get" if found["name"] else "list")
    where = f"in namespace {found['namespace']}" if found["namespace"] else "at the cluster scope"
    resource = found["resource"] + (found["subresource"] or "")
    return f"{verb} {resource} of apiGroup {found['group'] or ''!r} {where}"


def _right(named: re.Match[str]) -> str:
    where = f"in namespace {named['namespace']}" if named["namespace"] else "at the cluster scope"
    return f"{named['verb']} {named['resource']} of apiGroup {named['group']!r} {where}"


def refused(err: ApiError) -> HopError:
    """The error of a request without permission: permission, user, and where all required ones are listed."""
    if err.refused_user == ANONYMOUS:
        return nobody()
    named = _NAMED.search(err.message)
    right = _right(named) if named else right_to(err.request)
    return HopError(
        Hop.API_SERVER,
        seen=f"user {err.refused_user} has no permission to {right}",
        fix=f"have an administrator grant it to {err.refused_user}: {RIGHTS} has all required permissions",
    )


def nobody() -> HopError:
    """The error of a client without a login."""
    return HopError(
        Hop.API_SERVER,
        seen=f"the client sends no credentials, so the API server treats it as {ANONYMOUS}",
        fix="log in, or set kubeconfig and context to a user with a login: kubectl auth whoami, with the same "
        "kubeconfig, shows who that is",
    )
