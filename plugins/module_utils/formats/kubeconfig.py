# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Adds one cluster to a kubeconfig, removes it, and copies one context. All other entries stay as they are."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, count
from typing import Any

from ..errors import HopError, enumeration
from ..hops import Hop
from .x509 import subject
from .yaml import from_yaml_of_others, to_yaml

Entries = dict[str, dict[str, Any]]

REPLACE = "download the kubeconfig again, or use another context"
# Sections, and the field of their entries beside the name.
SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
AUTHORITY = "certificate-authority-data"
# Extension of a run's own copy. It has the source, and the error if no copy could be made.
EXTENSION = "kubegpu.autoscale"
# Fields with paths, which are relative to the folder of the file.
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
# Other fields of a cluster for trust, which must not be beside the authority.
_OTHER_TRUST = ("certificate-authority", "insecure-skip-tls-verify")


@dataclass(frozen=True)
class Kubeconfig:
    """The document of a kubeconfig, and its entries by name."""

    document: Mapping[str, Any]
    clusters: Entries
    contexts: Entries
    users: Entries

    @classmethod
    def read(cls, text: str, path: str) -> Kubeconfig:
        """Raises: HopError that names the file if the text is not a kubeconfig."""
        try:
            document = from_yaml_of_others(text)
        except ValueError as err:
            raise _unreadable(path, f"is not YAML: {err}") from err
        if document is None:
            document = {}
        if not isinstance(document, Mapping):
            raise _unreadable(path, "is not a kubeconfig: it is not a mapping with clusters, contexts and users")
        return cls.of(document, path)

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str) -> Kubeconfig:
        return cls(document, *(_entries(document, section, path) for section in SECTIONS))

    @property
    def is_empty(self) -> bool:
        return not (self.clusters or self.contexts or self.users)

    @property
    def current(self) -> str:
        return str(self.document.get("current-context") or "")

    @property
    def copied(self) -> Mapping[str, Any]:
        """What a run's own copy says about itself; empty for another file."""
        named = [entry for entry in self.document.get("extensions") or [] if isinstance(entry, Mapping)]
        return next((entry.get("extension") or {} for entry in named if entry.get("name") == EXTENSION), {})

    def context(self, wanted: str, path: str) -> tuple[str, str]:
        """Name of a context and address of its API server: of the wanted one, or else the current one.

        Raises: HopError with the path if the context or the cluster does not exist.
        """
        if not self.contexts:
            state = "is empty" if self.is_empty else "has no contexts"
            raise HopError(
                Hop.API_SERVER, seen=f"{path} {state}", fix="set kubeconfig to a cluster's file, or download it again"
            )
        name = wanted or self.current or next(iter(self.contexts))
        if name not in self.contexts:
            raise HopError(
                Hop.API_SERVER,
                seen=f"{path} has no context {name}",
                fix=f"set kubegpu_context, or context of the module, to one of {enumeration(sorted(self.contexts))}",
            )
        cluster = self.contexts[name].get("cluster") or ""
        if cluster not in self.clusters:
            named = f"the cluster {cluster}, which the file does not have" if cluster else "no cluster"
            raise HopError(Hop.API_SERVER, seen=f"context {name} of {path} names {named}", fix=REPLACE)
        return name, str(self.clusters[cluster].get("server") or "")


@dataclass(frozen=True)
class Access:
    """The administrator's access in a kubeconfig of kubeadm."""

    cluster_name: str
    cluster: dict[str, Any]
    context_name: str
    user_name: str
    user: dict[str, Any]

    @classmethod
    def read(cls, text: str) -> Access:
        """Raises: HopError if the text is not the kubeconfig of one cluster with its authority."""
        given = "the kubeconfig of the cluster"
        config = Kubeconfig.read(text, given)
        name, _address = config.context("", given)
        context = config.contexts[name]
        cluster, user = context["cluster"], context.get("user")
        if user not in config.users or AUTHORITY not in config.clusters[cluster]:
            raise _unreadable(given, f"has no user {user}, or no {AUTHORITY} of cluster {cluster}")
        return cls(cluster, config.clusters[cluster], name, user, config.users[user])

    @property
    def digest(self) -> str:
        """Identifies the cluster among others with its name."""
        return sha256(str(self.cluster[AUTHORITY]).encode()).hexdigest()[:8]

    def clusters_in(self, config: Kubeconfig) -> list[str]:
        """Entries of this cluster, with any name: they trust its authority, and have its address."""
        return [
            name for name in self.of_its_authority(config) if _server(config.clusters[name]) == _server(self.cluster)
        ]

    def of_its_authority(self, config: Kubeconfig) -> list[str]:
        """With another address, it may be another cluster: of a company's authority, or of a copied machine."""
        authority = _joined(self.cluster[AUTHORITY])
        return [name for name, cluster in config.clusters.items() if _joined(cluster.get(AUTHORITY)) == authority]

    def is_user(self, user: Mapping[str, Any] | None) -> bool:
        """Whether it is the same user, possibly with a renewed certificate."""
        return user == self.user or bool(user and (ours := _subject(self.user)) and _subject(user) == ours)


@dataclass(frozen=True)
class Names:
    """Names of one cluster's entries in a file. An empty user: the context has another one, which stays."""

    cluster: str
    context: str
    user: str


def merged(config: Kubeconfig, access: Access, wanted: str, path: str) -> tuple[Kubeconfig, Names]:
    """The file with this cluster, and the names of its entries. The current context stays.

    wanted: name of the context; empty for the existing one, or the cluster's own name if it is free.
    Raises: HopError if the wanted context belongs to another cluster.
    """
    names = _names(config, access, wanted, path)
    kept = {key: value for key, value in config.clusters.get(names.cluster, {}).items() if key not in _OTHER_TRUST}
    changes: dict[str, tuple[str, dict[str, Any]]] = {"clusters": (names.cluster, {**kept, **access.cluster})}
    if names.user:
        before = config.contexts.get(names.context, {})
        changes["contexts"] = (names.context, {**before, "cluster": names.cluster, "user": names.user})
        changes["users"] = (names.user, access.user)
    document = {"apiVersion": "v1", "kind": "Config", **config.document}
    for section, (name, content) in changes.items():
        document[section] = _with_entry(document.get(section) or [], name, SECTIONS[section], content)
    if config.is_empty:
        document["current-context"] = names.context
    return Kubeconfig.of(document, path), names


def removed(config: Kubeconfig, access: Access, path: str) -> Kubeconfig:
    """The file without this cluster, its contexts and its user."""
    clusters = set(access.clusters_in(config))
    contexts = {name for name, context in config.contexts.items() if context.get("cluster") in clusters}
    still_used = {context.get("user") for name, context in config.contexts.items() if name not in contexts}
    served = {config.contexts[name].get("user") for name in contexts} - still_used
    users = {name for name in served if name in config.users and access.is_user(config.users[name])}
    document = dict(config.document)
    for section, gone in (("clusters", clusters), ("contexts", contexts), ("users", users)):
        if gone:
            document[section] = [entry for entry in document[section] if entry["name"] not in gone]
    if config.current in contexts:
        document["current-context"] = ""
    return Kubeconfig.of(document, path)


def alone(config: Kubeconfig, wanted: str, path: str) -> dict[str, Any]:
    """The document with one context, its cluster and its user, and absolute paths.

    wanted: name of the context; empty for the only one. path: absolute path of the file.
    Raises: HopError if several contexts exist and none is wanted, or if an entry is missing.
    """
    if not wanted and len(config.contexts) > 1:
        raise several_contexts(config, path)
    name, _address = config.context(wanted or next(iter(config.contexts), ""), path)
    context = config.contexts[name]
    cluster, user = context["cluster"], context.get("user")
    if user and user not in config.users:
        raise missing_user(name, user, path)
    folder = posixpath.dirname(path)
    sections = {"clusters": {cluster: config.clusters[cluster]}, "contexts": {name: context}}
    sections["users"] = {user: config.users[user]} if user else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "extensions": [{"name": EXTENSION, "extension": {"source": path}}],
        **{
            section: [{"name": key, SECTIONS[section]: _placed(entry, folder)} for key, entry in entries.items()]
            for section, entries in sections.items()
        },
    }


def refusal(source: str, error: HopError, *, is_missing: bool) -> dict[str, Any]:
    """In place of a copy: a document without contexts that has the reason."""
    reason = {"source": source, "seen": error.seen, "fix": error.fix, "is_missing": is_missing}
    return {"apiVersion": "v1", "kind": "Config", "extensions": [{"name": EXTENSION, "extension": reason}]}


def several_contexts(config: Kubeconfig, path: str) -> HopError:
    names = enumeration(sorted(config.contexts))
    return HopError(
        Hop.API_SERVER,
        seen=f"{path} has {len(config.contexts)} contexts: {names}. Nothing was changed.",
        fix="set kubegpu_context in the inventory, or context of a module",
    )


def missing_user(context: str, user: str, path: str) -> HopError:
    seen = f"context {context} of {path} names the user {user}, which the file does not have"
    return HopError(Hop.API_SERVER, seen=seen, fix=REPLACE)


def _placed(entry: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """With absolute paths. A program without a slash is searched in the PATH."""
    placed: dict[str, Any] = {key: posixpath.join(folder, entry[key]) for key in _PATHS if entry.get(key)}
    program = entry.get("exec") or {}
    if "/" in str(program.get("command") or ""):
        placed["exec"] = {**program, "command": posixpath.join(folder, program["command"])}
    return {**entry, **placed}


def has_others(config: Kubeconfig, access: Access) -> bool:
    """Whether the file has entries of other clusters."""
    return not removed(config, access, "").is_empty


def written(config: Kubeconfig) -> str:
    return to_yaml([dict(config.document)])


def outline(config: Kubeconfig) -> str:
    """The file for a diff: names, addresses, and digests instead of keys, certificates and tokens."""
    document = {
        "current-context": config.current,
        "clusters": {
            name: {"server": entry.get("server"), "rest": _digest(entry)} for name, entry in config.clusters.items()
        },
        "contexts": config.contexts,
        "users": {name: _digest(entry) for name, entry in config.users.items()},
    }
    return "" if config.is_empty else to_yaml([document])


def _names(config: Kubeconfig, access: Access, wanted: str, path: str) -> Names:
    found = access.clusters_in(config)
    similar = {*access.of_its_authority(config)} - {*found}
    meant = config.contexts[wanted].get("cluster") if wanted in config.contexts else ""
    if (similar and not found and not wanted) or meant in similar:
        raise _another_address(config, access, meant or min(similar), path)
    if wanted in config.contexts and config.contexts[wanted].get("cluster") not in found:
        raise HopError(
            Hop.API_SERVER,
            seen=f"context {wanted} of {path} is of another cluster: {config.contexts[wanted].get('cluster')}",
            fix="set kubegpu_context to a name that is free in the file, or leave it out",
        )
    ours = [
        name
        for name, context in config.contexts.items()
        if context.get("cluster") in found and access.is_user(config.users.get(context.get("user", "")))
    ]
    if wanted in config.contexts and wanted not in ours:
        return Names(config.contexts[wanted]["cluster"], wanted, "")
    context = wanted or next(iter(ours), "") or _free(access.context_name, config.contexts, access.digest)
    known = config.contexts.get(context) or config.contexts.get(next(iter(ours), ""), {})
    cluster = (
        known.get("cluster")
        or next(iter(found), "")
        or _free(access.cluster_name, _taken(config, "cluster"), access.digest)
    )
    others = {entry.get("user") for entry in config.contexts.values() if entry.get("cluster") not in found}
    user = known.get("user")
    if not user or user in others:
        user = _free(access.user_name, _taken(config, "user"), access.digest)
    return Names(cluster, context, user)


def _taken(config: Kubeconfig, kind: str) -> set[str]:
    """Names of clusters or users, including those that only contexts mention, which must not get another entry."""
    return {*(config.clusters if kind == "cluster" else config.users)} | {
        context[kind] for context in config.contexts.values() if kind in context
    }


def _free(name: str, taken: Collection[str], digest: str) -> str:
    """The name; if it is taken, with the digest of this cluster."""
    numbered = (f"{name}-{digest}-{number}" for number in count(2))
    return next(free for free in chain((name, f"{name}-{digest}"), numbered) if free not in taken)


def _with_entry(entries: list[Any], name: str, section: str, content: dict[str, Any]) -> list[Any]:
    """The list with this entry replaced, or appended."""
    if not any(entry["name"] == name for entry in entries):
        return [*entries, {section: content, "name": name}]
    return [{**entry, section: content} if entry["name"] == name else entry for entry in entries]


def _entries(document: Mapping[str, Any], section: str, path: str) -> Entries:
    given = document.get(section) or []
    if not isinstance(given, list):
        raise _unreadable(path, f"is not a kubeconfig: {section} is not a list")
    found: Entries = {}
    for place, entry in enumerate(given):
        content = entry.get(SECTIONS[section]) if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise _unreadable(path, f"is not a kubeconfig: {section}[{place}] has no name")
        if not isinstance(content or {}, Mapping):
            raise _unreadable(path, f"is not a kubeconfig: {section}[{place}].{SECTIONS[section]} is not a mapping")
        if section == "contexts" and not all(
            isinstance((content or {}).get(key, ""), str) for key in ("cluster", "user")
        ):
            raise _unreadable(path, f"is not a kubeconfig: cluster or user of {section}[{place}] is not a name")
        found.setdefault(entry["name"], dict(content or {}))  # kubectl also uses the first entry of a name
    return found


def _unreadable(path: str, seen: str) -> HopError:
    return HopError(
        Hop.API_SERVER, seen=f"{path} {seen}", fix="restore the file, or set kubegpu_kubeconfig to another one"
    )


def _another_address(config: Kubeconfig, access: Access, name: str, path: str) -> HopError:
    server = access.cluster.get("server")
    return HopError(
        Hop.API_SERVER,
        seen=f"cluster {name} of {path} has the certificate authority of this cluster and another address, "
        f"{config.clusters[name].get('server')} and not {server}. The file was not changed.",
        fix=f"if it is this cluster, `kubectl --kubeconfig {path} config set-cluster {name} --server={server}`; if it "
        "is another one, set kubegpu_context to a name that is free in the file; then run again",
    )


def _server(cluster: Mapping[str, Any]) -> str:
    return str(cluster.get("server") or "").rstrip("/").lower()


def _joined(data: Any) -> str | None:
    """Base64 may contain line breaks."""
    return "".join(data.split()) if isinstance(data, str) else None


def _subject(user: Mapping[str, Any]) -> bytes | None:
    try:
        return subject(base64.b64decode(str(user["client-certificate-data"])).decode())
    except (KeyError, ValueError):
        return None


def _digest(entry: Mapping[str, Any]) -> str:
    return sha256(repr(sorted(entry.items(), key=str)).encode()).hexdigest()[:8]
