# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from urllib.parse import unquote

# Source: k8s.io/apiserver pkg/endpoints/request/requestinfo.go
_RESOURCE = re.compile(
    r"GET /(?:api|apis/(?P<group>[^/]+))/[^/]+"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?P<subresource>/[^/]+)?(?:/.+)?)?"
)


def right_to(request: str) -> str:
    """What a reading request needs, in RBAC's words: verb, resource, API group and namespace.

    request: as an ApiError has it, ``GET /apis/apps/v1/namespaces/ml/deployments/chat/scale``.
    """
    found = _RESOURCE.fullmatch(unquote(request))
    if not found:
        return request.lower().replace(" ", " path ", 1)
    verb = "get" if found["name"] else "list"
    where = f"in namespace {found['namespace']}" if found["namespace"] else "at the cluster scope"
    resource = found["resource"] + (found["subresource"] or "")
    return f"{verb} {resource} of apiGroup {found['group'] or ''!r} {where}"
