# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Names that the API server accepts. Source: k8s.io/apimachinery pkg/util/validation/validation.go."""

from __future__ import annotations

import re
from hashlib import sha256

from .options import Rule

LONGEST_SUBDOMAIN, LONGEST_LABEL = 253, 63

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_KIND = re.compile(r"[A-Za-z](?:[-A-Za-z0-9]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")


def is_dns_label(text: str) -> bool:
    return len(text) <= LONGEST_LABEL and bool(_DNS_LABEL.fullmatch(text))


def is_dns_subdomain(text: str) -> bool:
    return len(text) <= LONGEST_SUBDOMAIN and bool(_DNS_SUBDOMAIN.fullmatch(text))


def is_kind(text: str) -> bool:
    return len(text) <= LONGEST_LABEL and bool(_KIND.fullmatch(text))


def is_api_version(text: str) -> bool:
    group, slash, version = text.rpartition("/")
    is_version = len(version) <= LONGEST_LABEL and bool(_VERSION.fullmatch(version))
    return is_version and (is_dns_subdomain(group) if slash else True)


def is_group_version(text: str) -> bool:
    """API version with a group, which the API server requires of an HPA's target."""
    return "/" in text and is_api_version(text)


def is_label_value(text: str) -> bool:
    return not text or (len(text) <= LONGEST_LABEL and bool(_QUALIFIED.fullmatch(text)))


def is_qualified_name(text: str) -> bool:
    """Name of a label or a resource, with or without a prefix: ``app``, ``nvidia.com/gpu``."""
    prefix, slash, name = text.rpartition("/")
    is_name = bool(name) and is_label_value(name)
    return is_name and (is_dns_subdomain(prefix) if slash else True)


def is_container_resource(text: str) -> bool:
    known = text in ("cpu", "memory", "ephemeral-storage") or text.startswith("hugepages-")
    return is_qualified_name(text) and (known or "/" in text)


def is_path_segment(text: str) -> bool:
    """A single segment in the path of a request, such as the name of a metric."""
    return text not in (".", "..") and "/" not in text and "%" not in text


_DIGEST_LENGTH = 8


def short_name(text: str) -> str:
    """The text if it is a valid label value; a longer text is cut and ends with a digest."""
    if len(text) <= LONGEST_LABEL:
        return text
    beginning = text[: LONGEST_LABEL - _DIGEST_LENGTH - 1].rstrip("-.")
    return f"{beginning}-{sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]}"


_LETTERS = "lower case letters, digits and dashes, a letter or digit at both ends"
DNS_LABEL: Rule = (is_dns_label, f"a name of at most {LONGEST_LABEL} characters: {_LETTERS}")
DNS_SUBDOMAIN: Rule = (
    is_dns_subdomain,
    f"a name of at most {LONGEST_SUBDOMAIN} characters, with dots or without: {_LETTERS}",
)
KIND: Rule = (is_kind, "a kind, Deployment for instance")
API_VERSION: Rule = (is_api_version, "v1 or group and version, apps/v1 for instance")
GROUP_VERSION: Rule = (is_group_version, "group and version, apps/v1 for instance")
CONTAINER_RESOURCE: Rule = (is_container_resource, "cpu, memory or a name as nvidia.com/gpu")
PATH_SEGMENT: Rule = (is_path_segment, "a name without / and %")
QUALIFIED_NAME: Rule = (is_qualified_name, "a name as cpu or nvidia.com/gpu")
