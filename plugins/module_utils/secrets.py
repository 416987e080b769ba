# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Finds secrets in values, and hides them.

A secret is recognized by the name of its key, or by the name beside its value (a container's variable, an HTTP header).
It is also recognized by the kind of its object (Secret), and by its text (a login in an address, `--password=x`).
A reference to a secret is public: secretName, secretKeyRef, existingSecret, tokenPath, auth_password_file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

HIDDEN = "(hidden)"
# Masking a shorter text everywhere in an output would mask unrelated words.
LEAST_MASKED = 6

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# A name is read as its words in lower case: GF_DATABASE_PASSWORD and databasePassword are "database password".
# A name with one of these words or endings is a secret, unless it ends like a reference.
_SECRET_WORD = re.compile(r"(?:password|passwd|passphrase|pwd|token|apikey|credentials?|htpasswd|dockerconfigjson)\b")
_SECRET_END = re.compile(
    r"\b(?:(?:access|account|api|app|application|auth|encryption|hmac|integration|license|master|private|registration|"
    r"routing|secret|service|session|shared|signing|ssh|storage|user|write) key|(?:api|hook|webhook) url|"
    r"secret(?: value| data)?|pass|passwords|tokens|auth|authorization|cookie|dsn|connection string|key data|psk)$"
)
_REFERENCE_END = re.compile(
    r"\b(?:audiences?|dir|enabled|endpoint|expiration|expiry|field|files?|folder|id|keys?|length|method|mount|names?|"
    r"namespace|path|policy|refs?|required|seconds|selector|ttl|type|uri|url|user|username)$"
)
# References to Secrets of Kubernetes in charts and pods.
_NAMED_SECRET = re.compile(
    r"\b(?:auth|ca|cert|certificate|config|existing|from|image|key|pull|root|server|ssl|tls) secret$"
)
# Keys below a secret that describe it, in addition to references. A key that is just `key` or `url` may be the secret.
_ABOUT = {"annotations", "apiVersion", "create", "kind", "labels", "metadata", "optional", "valueFrom"}
_MAY_BE_IT = re.compile(r"\b(?:field|keys?|uri|url)$")
_SELECTOR = {"defaultMode", "items", "key", "name", "namespace", "optional", "secretKey", "secretName"}

# A placeholder that the reading program replaces: $(NAME), ${NAME}, $__file{/x}, {{ .Values.x }}, <secret>.
_PLACEHOLDER = re.compile(r"\$[({]|\$__|\{\{|<\w+>$|\(hidden\)$")
_NAME = r"(?P<name>[A-Za-z][\w.-]*)"
_NAMELESS = (
    # A private key, and a header.
    re.compile(r"(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*))", re.S),
    # A login in an address.
    re.compile(r"\b(?!ssh\b)[A-Za-z][\w+.-]*://(?P<secret>[^/\s\"'<>?#]+)(?=@)"),
    re.compile(r"\b(?:Bearer|Authorization[\"']?[:=]\s*[\"']?\w+)\s+(?P<secret>(?=\S*[A-Z\d._-])[\w+/.~-]{8,}=*)"),
    # Addresses whose path is the credential, and tokens with the format of their issuer.
    re.compile(r"https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/(?P<secret>[^\s\"']+)"),
    re.compile(r"https://(?:[\w.-]+\.webhook\.office\.com/|api\.telegram\.org/bot)(?P<secret>[^\s\"']+)"),
    re.compile(r"\b(?P<secret>(?:hf_|gh[opsru]_|github_pat_|glpat-|nvapi-|xox[abeprs]-)[\w-]{16,})"),
    re.compile(r"\b(?P<secret>eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)"),
)
_NAMED = (
    # NAME=x, `--name x`, a line of YAML, and a container's variable in such lines or in JSON.
    re.compile(_NAME + r"=(?:\"(?P<secret>[^\"\n]+)\"|'(?P<single>[^'\n]+)'|(?P<bare>[^\s\"',;&|]+))"),
    re.compile(r"(?<!\S)--?" + _NAME + r"\s+(?P<secret>[^\s-]\S*)"),
    re.compile(r"^[ \t]*(?:- )?[\"']?" + _NAME + r"[\"']?:[ \t]+(?P<secret>\S[^\n]*)", re.M),
    re.compile(r"\bname[\"']?:\s*[\"']?(?P<name>[\w.-]+)[\"']?,?\s+[\"']?value[\"']?:\s*[\"']?(?P<secret>[^\s\"']+)"),
)
_HINT = re.compile(
    r"[@=]|://|-----BEGIN|(?<!\S)--?\w|:\s|\b(?:Bearer |eyJ|hf_|gh\w_|github_pat_|glpat|nvapi|xox)|^[{\[]"
)


@dataclass(frozen=True)
class Secret:
    """A secret: its path of keys, and its text."""

    path: str
    text: str


def redacted(value: Any) -> Any:
    """The value with all secrets hidden; its structure stays."""
    return _Redaction().of(value)


def secrets_in(value: Any) -> list[Secret]:
    """The secrets of a value, in its order."""
    redaction = _Redaction()
    redaction.of(value)
    return redaction.found


def masked_texts(*values: Any) -> set[str]:
    """Secrets that no output may contain. Short ones and numbers are excluded, because they occur in many outputs."""
    found = {secret.text for value in values for secret in secrets_in(value)}
    texts = found | {text.partition(":")[2] for text in found}  # of a login, only the password
    return {text for text in texts if len(text) >= LEAST_MASKED and not text.isdecimal()}


def without_login(address: str) -> str:
    """An address without user and password, for arguments of programs and for output."""
    return re.sub(r"^([A-Za-z][\w+.-]*://)[^/?#]*@", r"\1", address)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value of a key with this name is itself a secret, not a reference to one."""
    words = _words(name.rpartition("/")[2])
    if _SECRET_END.search(words):
        return not _NAMED_SECRET.search(words)
    is_public = _REFERENCE_END.search(words) or words.startswith("automount")
    return not is_public and _SECRET_WORD.search(words) is not None


@dataclass
class _Redaction:
    found: list[Secret] = field(default_factory=list)

    def of(self, value: Any, path: str = "", *, below: bool = False) -> Any:
        """below: a parent key marks all of it as secret."""
        if isinstance(value, Mapping):
            return self._mapping(value, path, below)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return self._list(value, path, below)
        if isinstance(value, bool) or value is None:
            return value
        if below:
            return self._whole(value, path)
        return self._text(value, path) if isinstance(value, str) else value

    def _mapping(self, value: Mapping[Any, Any], path: str, below: bool) -> dict[Any, Any]:
        below = below and not _is_selector(value)
        of_secret = value.get("kind") == "Secret"
        named = next((str(value[key]) for key in ("name", "key", "header") if isinstance(value.get(key), str)), "")
        shown = {}
        for key, inner in value.items():
            at = f"{path}.{key}" if path else str(key)
            if key == "value" and is_secret_name(named) and not _is_count(named, inner):
                shown[key] = self.of(inner, f"{path} {named}".strip(), below=True)
            elif of_secret and key in ("data", "stringData") and isinstance(inner, Mapping):
                shown[key] = {entry: self._whole(text, f"{at}.{entry}") for entry, text in inner.items()}
            else:
                shown[key] = self.of(inner, at, below=self._is_below(str(key), inner, path, below))
        return shown

    @staticmethod
    def _is_below(key: str, inner: Any, path: str, below: bool) -> bool:
        if below:
            return not _is_about(key)
        if key == "url":  # of Alertmanager's receiver, for which it is a secret, too
            return re.search(r"webhook_?configs\b[^.]*$", path, re.I) is not None
        if isinstance(inner, Mapping):  # `auth: {...}` has settings beside secrets
            words = _words(key)
            return words.endswith("secrets") or (is_secret_name(key) and not words.endswith(("auth", "authorization")))
        return is_secret_name(key) and not _is_count(key, inner)

    def _list(self, value: Sequence[Any], path: str, below: bool) -> list[Any]:
        shown = []
        for number, item in enumerate(value):
            own = number > 0 and _is_argument_of(value[number - 1], item)
            shown.append(self.of(item, f"{path}[{number}]", below=below or own))
        return shown

    def _whole(self, value: Any, path: str) -> Any:
        text = str(value)
        if text.lower() in ("", "true", "false", "null") or _PLACEHOLDER.match(text):
            return value
        self.found.append(Secret(path, text))
        return HIDDEN

    def _text(self, text: str, path: str) -> str:
        if not _HINT.search(text):
            return text
        if (inner := _json(text)) is not None:
            shown = self.of(inner, path)
            return text if shown == inner else json.dumps(shown)
        for pattern in _NAMELESS:
            text = pattern.sub(lambda match: self._piece(match, path), text)
        for pattern in _NAMED:
            text = pattern.sub(lambda match: self._named_piece(match, path), text)
        return text

    def _named_piece(self, match: re.Match[str], path: str) -> str:
        name, given = match["name"], match[match.lastgroup or "secret"]
        # `secret="login"` selects in PromQL. A mapping or a block that follows a key has its own keys.
        is_value = given[0] not in "{[|>&*" and given not in ("true", "false", "null")
        is_secret = is_value and name.lower() != "secret" and is_secret_name(name) and not _is_count(name, given)
        return self._piece(match, path) if is_secret else match[0]

    def _piece(self, match: re.Match[str], path: str) -> str:
        group = match.lastgroup or "secret"
        secret = match[group].strip("\"'") or match[group]
        if all(_PLACEHOLDER.match(part) for part in secret.split(":")[-1:]):
            return match[0]
        self.found.append(Secret(path, secret))
        start, end = (place - match.start() for place in match.span(group))
        return match[0][:start] + HIDDEN + match[0][end:]


def _words(name: str) -> str:
    return " ".join(_WORDS.findall(name)).lower()


def _is_argument_of(flag: Any, item: Any) -> bool:
    """["--password", "x"]."""
    if not isinstance(flag, str) or not flag.startswith("-") or not isinstance(item, str) or item.startswith("-"):
        return False
    name = flag.lstrip("-")
    return re.fullmatch(r"[\w.-]+", name) is not None and is_secret_name(name) and not _is_count(name, item)


def _is_about(key: str) -> bool:
    """A key below a secret with its location or purpose."""
    words = _words(key)
    return key in _ABOUT or (_REFERENCE_END.search(words) is not None and not _MAY_BE_IT.search(words))


def _is_count(name: str, value: Any) -> bool:
    """max_tokens: 512."""
    return _words(name).endswith("tokens") and str(value).replace(".", "", 1).isdecimal()


def _is_selector(value: Mapping[Any, Any]) -> bool:
    """A reference to a Secret, or to one key of it."""
    keys = set(map(str, value))
    return keys <= _SELECTOR and bool(keys & {"name", "secretName"})


def _json(text: str) -> Any:
    """The object or list in a JSON text, such as last-applied-configuration; None if it is not one."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
