# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Finds secrets in values, and hides them.

A secret is recognized by the name of its key, or by the name beside its value (a container's variable, an HTTP header).
It is also recognized by the kind of its object (Secret), and by its text (a login in an address, `--password=x`).
A text that is a document (JSON, YAML, TOML, INI) or Base64 is judged by its contents, with the same rules.
A reference to a secret is public: secretName, secretKeyRef, existingSecret, tokenPath, auth_password_file.
"""

from __future__ import annotations

import binascii
import configparser
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

# A server that only reports about itself may have neither. Texts are then judged line by line.
with suppress(ImportError):
    import yaml
with suppress(ImportError):
    import tomllib

HIDDEN = "(hidden)"
# Masking a shorter text everywhere in an output would mask unrelated words.
LEAST_MASKED = 6
# Bounds of a document in a text: characters, nesting, values. A text beyond them is hidden as a whole.
LONGEST_DOCUMENT = 1 << 20
DEEPEST = 60
MOST_VALUES = 100_000
# Documents in texts of documents, Base64 included.
_MOST_NESTED = 6

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# A name is read as its words in lower case: GF_DATABASE_PASSWORD and databasePassword are "database password".
# A name with one of these words or endings is a secret, unless it ends like a reference.
# Words may stand together: secretkey, DBPASS, TS_AUTHKEY.
SECRET_KEYS = (
    "access|account|api|app|application|auth|certificate|consumer|encryption|gpg|hmac|integration|jwt|license|master|"
    "private|registration|routing|secret|service|session|shared|signing|ssh|storage|subscription|user|write"
)
_SECRET_WORD = re.compile(
    r"(?:pass ?(?:words?|wd|phrases?|code)|pwd|token|apikeys?|credentials?|\bcreds?|dockerconfigjson)\b"
)
_SECRET_END = re.compile(
    rf"(?:(?:{SECRET_KEYS}) ?keys?|^x [a-z ]+ key|secret key base|(?:api|hook) ?urls?|"
    r"secret(?: ?(?:value|env|string|(?:string )?data))?|(?:api|app|application|auth|client|credential) ?secrets|"
    r"secure ?json ?data|\b(?!(?:by|com|encom|over|sur|tres|under)pass$)\w*pass|pw|pwds|tokens|token ?ids?|"
    r"(?:\b|basic|master)auth|\b(?:authorization|cookie|dsn|psk)|honeycomb ?team|connection ?strings?|key ?data)$"
)
_REFERENCE_END = re.compile(
    r"\b(?:audiences?|dir|enabled|endpoint|expiration|expiry|field|files?|folder|id|keys?|length|method|mount|names?|"
    r"namespace|path|policy|refs?|required|seconds|selector|ttl|type|uri|url|user|username)$"
)
# References to Secrets of Kubernetes in charts and pods.
_NAMED_SECRET = re.compile(
    r"\b(?:image ?)?(?:ca|cert|certificate|config|existing|from|image|(?<!access )key|pull|root|server|ssl|tls)"
    r" ?secret$"
)
_SECRET_DATA = re.compile(r"secret (?:string )?data$")
# A map or a list of secrets; a name alone in it is a reference.
_SECRETS = re.compile(r"(?<!external )(?<!sealed )secrets$")
_NGINX_REFERENCE = re.compile(r"ingress\.kubernetes\.io/auth-secret$")
# Keys below a secret that describe it, in addition to references. A key that is just `key` or `url` may be the secret.
_ABOUT = {"annotations", "apiVersion", "create", "kind", "labels", "metadata", "optional", "valueFrom"}
_MAY_BE_IT = re.compile(r"\b(?:field|keys?|uri|url)$")
_SELECTOR = {"defaultMode", "items", "key", "name", "namespace", "optional", "secretKey", "secretName"}
_NAMES = {"field", "header", "key", "name", "param", "property"}
_VALUES = {"data", "default", "stringdata", "text", "val", "value", "values"}
# Parameters of a signed address: sig, X-Amz-Signature.
_SIGNATURE = re.compile(r"\b(?:sig|signature)$")

# A placeholder that the reading program replaces: $(NAME), ${NAME}, $__file{/x}, {{ .Values.x }}, <secret>.
# The default in ${NAME:-x} is a value.
_PLACEHOLDER = re.compile(r"\$\(|\$\{(?!\w+:?[-=][^}$])|\$__|ENC\[AES|\{\{|<\w+>$|\(hidden\)$|# [^\n]*$")
_EMPTY = {"", '""', "''", "true", "false", "null"}
_NAME = r"(?P<name>[A-Za-z][\w.-]*)"
_NAMELESS = (
    # A private key, and a header.
    re.compile(
        r"(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
        r"(?:.*?-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|.*))",
        re.S,
    ),
    # A login in an address, and one as an argument. A user and a group are numbers.
    re.compile(r"(?:(?<!\bssh)://|\bssh://(?=[^/\s@]+:))(?P<secret>[^/\s\"'<>?#]+)(?=@)"),
    # Without a scheme: me:x@proxy:3128, me:x@tcp(db:3306)/. Others are a voter of Kafka and an image.
    re.compile(
        r"(?<![\w.:/-])[\w.-]{1,100}:(?P<secret>(?!\d+,\d+@)[^\s\"']{1,200})(?=@(?:(?:tcp|udp|unix)?\(|(?!sha\d)[\w.-]{1,200}:\d))"
    ),
    re.compile(
        r"(?<!\S)(?:-u|--user|--proxy-user)[ =]?[\"']?(?!\d+:\d+\b)[^\s:\"'=/]+:(?P<secret>(?!//)[^\s\"']+)(?<!:)"
    ),
    re.compile(r"\b(?:[Bb]earer|Authorization[\"']?[:=]\s*[\"']?\w+)\s+(?P<secret>(?=\S*[A-Z\d._-])[\w+/.~-]{8,}=*)"),
    re.compile(r"\b[Bb]asic\s+(?P<secret>(?=\S*[A-Z\d=])[A-Za-z\d+/]{8,}={0,2})"),
    re.compile(r"\blogin\s+\S+\s+password\s+(?P<secret>\S+)"),
    re.compile(
        r"\b(?:sshpass\s+-p|redis-cli\s(?:[^|;&\n]{0,200}\s)?-a|(?:mysql\w{0,20}|login)\s(?:[^|;&\n]{0,200}\s)?-p)\s*"
        r"(?P<secret>\S+)"
    ),
    re.compile(r"(?P<secret>\$(?:2[aby]|apr1|[156y])\$[^\s\"',:]{8,})"),
    # Addresses whose path is the credential, and tokens with the format of their issuer.
    re.compile(r"https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/(?P<secret>[^\s\"']+)"),
    re.compile(
        r"https://(?:[\w.-]+\.webhook\.office\.com/|api\.telegram\.org/bot|alert\.victorops\.com/|nosnch\.in/|hc-ping\.com/)"
        r"(?P<secret>[^\s\"']+)"
    ),
    re.compile(
        r"\b(?P<secret>(?:hf_|gh[opsru]_|github_pat_|gl(?:pat|sa|c)[-_]|nvapi-|xox[abeprs]-|xapp-|AIza|dckr_pat_|hvs\.|"
        r"AGE-SECRET-KEY-|(?:[rs]k[-_]|npm_|pypi-|SG\.)(?=[\w.-]*\d))[\w.-]{16,})"
    ),
    re.compile(r"\b(?P<secret>eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)"),
)
# NAME=x. The value of a public name may have names itself: `--set=password=x`, `OPTIONS="-Dpassword=x"`.
# A run of letters is looked at once, because a picture or an archive in a text has long ones.
_ASSIGNED_NAME = re.compile(r"(?<![\w.-])(?:(?![A-Za-z])[\w.-])*" + _NAME + "=")
_ASSIGNED = re.compile(_NAME + r"=(?:\"(?P<secret>[^\"\n]+)\"|'(?P<single>[^'\n]+)'|(?P<bare>[^\s\"',;&|]+))")
_NAMED = (
    # `--name x`, a line of YAML or INI, and a container's variable in such lines or in JSON.
    re.compile(r"(?<!\S)--?" + _NAME + r"\s+(?P<secret>[^\s-]\S*)"),
    re.compile(r"^[ \t#;]*(?:- )?[\"']?" + _NAME + r"[\"']?[ \t]*[:=][ \t]+(?P<secret>\S[^\n]*)", re.M),
    re.compile(r"[\"']" + _NAME + r"\\*[\"']\s*:\s*\\*[\"'](?P<secret>[^\"'\\]+)"),
    # The default of a variable, a header, and a setting of which the line has no other sign.
    re.compile(r"\$\{(?P<name>\w+):?[-=](?P<secret>[^}\s]+)"),
    re.compile(
        r"(?<![\w.-])(?P<name>(?:[A-Z]\w*-)+[A-Z]\w*|Authorization)[ \t]+"
        r"(?:\"(?P<secret>[^\"\n]+)\"|'(?P<single>[^'\n]+)'|(?P<bare>(?=\S*[A-Z\d])[^\s\"';]+))"
    ),
    re.compile(r"^[ \t]*" + _NAME + r"[ \t]+(?P<secret>(?=\S*[A-Z\d_-])[^\s;]+);?$", re.M),
    re.compile(r"<" + _NAME + r">\s*(?P<secret>[^\s<][^<]*)</"),
    re.compile(r"(?:-H|--header)[ =]?[\"']?" + _NAME + r":\s*(?P<secret>[^\"'\n]+)"),
    re.compile(r"\bname[\"']?:\s*[\"']?(?P<name>[\w.-]+)[\"']?,?\s+[\"']?value[\"']?:\s*[\"']?(?P<secret>[^\s\"']+)"),
)
_HINT = re.compile(
    r"^[ \t]*[\w.-]+[ \t]+\S+$|\b(?:[A-Z]\w*-[A-Z]|Authorization)|[@=$]|://|-----BEGIN|(?<!\S)--?\w|:\s|[\"']:|</|"
    r"\b(?:[Bb]earer |[Bb]asic |login |eyJ|hf_|gh\w_|github_pat_|gl(?:pat|sa|c)|nvapi|xox|xapp|"
    r"[sr]k[-_]|AIza|dckr_|hvs\.|npm_|pypi-|SG\.|AGE-)|^[{\[]",
    re.M,
)
# A document in a text has lines or brackets, and names with values.
_DOCUMENT = re.compile(r"^\s*[{\[]|^[ \t]*(?:- +)?[\"']?[\w./-]+[\"']?[ \t]*[:=](?:\s|$)", re.M)
_TEMPLATE = re.compile(r"^[ \t]*\{\{.*?\}\}[ \t]*\n|\{\{.*?\}\}", re.M | re.S)
_OF_SECRET = re.compile(r"^[ \t]*(?:- +)?[\"']?kind[\"']?:[ \t]+[\"']?Secret(?:List)?\b", re.M)
_ENCODED = re.compile(r"(?<![\w+/])[A-Za-z\d+/]{40,}={0,2}")
_BASE64 = re.compile(r"[A-Za-z\d+/_-]{15}[A-Za-z\d+/_\s-]+={0,2}\s*")

# A random text: 20 characters or more, of which 12 together are letters and digits in turn.
_RUN = re.compile(r"(?<![\w+/])[A-Za-z\d+/_-]{20,}={0,2}(?![\w+/])")
_STRETCH = re.compile(r"[A-Za-z\d]{12,}")
_HEX = re.compile(r"[\da-f]{32,}|[\dA-F]{32,}")
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PUBLIC_TEXT = re.compile(
    r"-----BEGIN (?:CERTIFICATE|PUBLIC KEY|[A-Z ]*REQUEST)-----.*?-----END [A-Z ]+-----|\bsha\d+[:-][A-Za-z\d+/=]+|"
    r"\bssh-\w+ \S+|/(?:blob|commit|raw|tree)/[\da-f]+|\bdata:[\w/+.-]+;base64,[A-Za-z\d+/=]+",
    re.S,
)
_PUBLIC_NAME = re.compile(
    r"\b(?:bundle|ca|cert|certificate|checksum|commit|digest|fingerprint|hash|public key|revision|sha|uid|uuid)$"
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


def random_texts_in(value: Any) -> list[Secret]:
    """Texts of a value that no rule recognizes as secrets, and that look random, as keys and tokens do."""
    redaction = _Redaction(random=[])
    redaction.of(value)
    return redaction.random or []


def masked_texts(*values: Any) -> set[str]:
    """Secrets that no output may contain. Short ones and numbers are excluded, because they occur in many outputs."""
    redaction = _Redaction()
    redaction.of(values)
    found = {*(secret.text for secret in redaction.found), *redaction.documents}
    texts = found | {text.partition(":")[2] for text in found}  # of a login, only the password
    # Outputs break lines. A line of a key has no blanks, other than one of a configuration.
    texts |= {line for text in found for line in text.splitlines() if not re.search(r"\s", line)}
    texts |= {repr(text)[1:-1] for text in found}  # in a mapping that an error shows
    return {text for text in texts if len(text) >= LEAST_MASKED and not text.isdecimal()}


def without_login(address: str) -> str:
    """An address without user and password, for arguments of programs and for output."""
    return re.sub(r"^([A-Za-z][\w+.-]*://)[^/?#]*@", r"\1", address)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value of a key with this name is itself a secret, not a reference to one."""
    words = _words(name.rpartition("/")[2])
    if _SECRET_END.search(words):
        return not _NAMED_SECRET.search(words) and not _NGINX_REFERENCE.search(name)
    is_public = _REFERENCE_END.search(words) or words.startswith("automount")
    return not is_public and _SECRET_WORD.search(words) is not None


@dataclass
class _Redaction:
    """Secrets that were found, and what they were found by.

    random:    texts that look random; None to find none.
    nested:    how many texts are around the value.
    documents: texts with secrets in them, which an output may show escaped.
    """

    found: list[Secret] = field(default_factory=list)
    random: list[Secret] | None = None
    nested: int = 0
    documents: list[str] = field(default_factory=list)

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
        if value.get("kind") == "SecretList" and isinstance(value.get("items"), list):
            value = {**value, "items": [{"kind": "Secret", **item} for item in value["items"]]}
        names = [str(name) for key, name in value.items() if str(key).lower() in _NAMES]
        named = next(filter(is_secret_name, names), "")
        of_secrets = _SECRETS.search(_words(path.rpartition(".")[2])) is not None
        of_secret = below or of_secrets or value.get("kind") == "Secret"
        public = _references(value)
        shown: dict[Any, Any] = {}
        for key, inner in value.items():
            name = self._lines(key, path) if isinstance(key, str) and _HINT.search(key) else key
            while name in shown:
                name += " "
            at = f"{path}.{name}" if path else str(name)
            is_data = (of_secret and key in ("data", "stringData")) or _SECRET_DATA.search(_words(str(key)))
            if is_data and isinstance(inner, Mapping):
                shown[name] = {entry: self._entry(text, f"{at}.{entry}") for entry, text in inner.items()}
            elif str(key).lower() in _VALUES and (named or of_secrets) and not _is_count(named, inner):
                shown[name] = self.of(inner, f"{path} {named}".strip() if named else at, below=True)
            elif is_data:
                shown[name] = self.of(inner, at, below=True)
            elif key == "encryptedData":  # of a SealedSecret
                shown[name] = inner
            else:
                is_below = key not in public and _is_below(str(key), inner, path, below)
                shown[name] = self.of(inner, at, below=is_below)
        return shown

    def _list(self, value: Sequence[Any], path: str, below: bool) -> list[Any]:
        shown = []
        for number, item in enumerate(value):
            own = number > 0 and _is_argument_of(value[number - 1], item)
            shown.append(self.of(item, f"{path}[{number}]", below=below or own))
        return shown

    def _entry(self, value: Any, path: str) -> Any:
        """An entry of a Secret, of which the name says nothing."""
        return self._whole(value, path) if isinstance(value, str) else self.of(value, path, below=True)

    def _whole(self, value: Any, path: str) -> Any:
        text = str(value).strip()
        if text.lower() in _EMPTY or _PLACEHOLDER.match(text):
            return value
        self.found.append(Secret(path, text))
        return HIDDEN

    def _text(self, text: str, path: str) -> str:
        if self._is_encoded(text):
            return str(self._whole(text, path))
        try:
            document, write = _parsed(text)
        except RecursionError:
            return str(self._whole(text, path))
        if document is not None and not (self.nested < _MOST_NESTED and _is_bounded(document)):
            return str(self._whole(text, path))
        if document is not None:
            known, inside = len(self.found), _Redaction(self.found, self.random, self.nested + 1)
            shown = inside.of(document, path)
            if len(self.found) > known:
                self.documents.append(text)
                text = write(shown)
            if write is json.dumps:  # JSON has no comments
                return text
        elif _OF_SECRET.search(text) or (len(text) > LONGEST_DOCUMENT and _DOCUMENT.search(text)):
            return str(self._whole(text, path))
        elif self.random is not None and not _PUBLIC_NAME.search(_words(path)):
            runs = _RUN.findall(_PUBLIC_TEXT.sub("", text))
            self.random += [Secret(path, run) for run in runs if _looks_random(run)]
        return self._lines(text, path) if _HINT.search(text) else text

    def _is_encoded(self, text: str) -> bool:
        """Whether Base64 has a secret in it."""
        decoded = _decoded(text)
        is_judged = self.nested < _MOST_NESTED
        inside = _Redaction(nested=self.nested + 1)
        return decoded is not None and not (is_judged and inside.of(decoded) == decoded)

    def _lines(self, text: str, path: str) -> str:
        text = _ENCODED.sub(lambda run: str(self._whole(run[0], path)) if self._is_encoded(run[0]) else run[0], text)
        for pattern in _NAMELESS:
            text = pattern.sub(lambda match: self._piece(match, path), text)
        text = self._assigned(text, path)
        for pattern in _NAMED:
            text = pattern.sub(lambda match: self._named_piece(match, path), text)
        return text

    def _assigned(self, text: str, path: str) -> str:
        shown, end, name = "", 0, _ASSIGNED_NAME.search(text)
        while name:
            match = _ASSIGNED.match(text, name.start("name")) if _is_named_secret(name["name"]) else None
            if match:
                shown, end = shown + text[end : match.start()] + self._named_piece(match, path), match.end()
            name = _ASSIGNED_NAME.search(text, match.end() if match else name.end())
        return shown + text[end:]

    def _named_piece(self, match: re.Match[str], path: str) -> str:
        name, given = match["name"], match[match.lastgroup or "secret"]
        # `secret="login"` selects in PromQL. A mapping or a block that follows a key has its own keys.
        is_value = given[0] not in "{[|>&*" and given not in ("true", "false", "null")
        is_matcher = re.match(r"secret=[\"']|[\w.-]+=~$", match[0], re.I) is not None
        is_secret = is_value and _is_named_secret(name) and not is_matcher and not _is_count(name, given)
        return self._piece(match, path) if is_secret else match[0]

    def _piece(self, match: re.Match[str], path: str) -> str:
        group = match.lastgroup or "secret"
        secret = match[group].strip("\"'") or match[group]
        if secret.lower() in _EMPTY or _PLACEHOLDER.match(secret.rpartition(":")[2]):
            return match[0]
        self.found.append(Secret(path, secret))
        start, end = (place - match.start() for place in match.span(group))
        return match[0][:start] + HIDDEN + match[0][end:]


def _is_named_secret(name: str) -> bool:
    return is_secret_name(name) or _SIGNATURE.search(_words(name)) is not None


def _is_below(key: str, inner: Any, path: str, below: bool) -> bool:
    """Whether a key makes all below it secret."""
    if below:
        return not _is_about(key)
    if key == "url":  # of Alertmanager's receiver, for which it is a secret, too
        return re.search(r"webhook_?(?:configs|outputs)\b[^.]*$", path, re.I) is not None
    if key == "key":  # the text of one; others are the name of a key
        return isinstance(inner, str) and re.search(r"\btls(?:[_-]?config)?$", path, re.I) is not None
    if key == "secrets":  # of a header; others are a list of names
        return re.search(r"\bheaders\b", _words(path)) is not None
    if key == "secret" and _words(path).endswith(("basic auth", "digest auth")):  # the name of one, in Traefik
        return False
    if isinstance(inner, Mapping):  # `auth: {...}` has settings beside secrets
        words = _words(key)
        return _SECRETS.search(words) is not None or (
            is_secret_name(key) and not words.endswith(("auth", "authorization"))
        )
    return is_secret_name(key) and not _is_count(key, inner)


def _references(value: Mapping[Any, Any]) -> set[Any]:
    """Keys that are references because of those beside them."""
    keys = {key: _words(str(key)) for key in value}
    found = set()
    if any(words.endswith("secret name") or _NAMED_SECRET.search(words) for words in keys.values()):
        found |= {key for key, words in keys.items() if words.endswith("key")}  # the names of its keys
    if keys.keys() & {"remoteRef", "sourceRef"}:  # of an ExternalSecret
        found |= {"secretKey"} & {*keys}
    if any(words in ("auth url", "token url") for words in keys.values()):
        found |= {key for key, words in keys.items() if words == "api url"}  # of an OAuth provider
    if "name" in keys or "file" in keys:
        found |= {"key"} & {*keys}
    return found


def _words(name: str) -> str:
    return " ".join(_WORDS.findall(name)).lower()


def _is_argument_of(flag: Any, item: Any) -> bool:
    """["--password", "x"], ["-u", "me:x"]."""
    if not isinstance(flag, str) or not flag.startswith("-") or not isinstance(item, str) or item.startswith("-"):
        return False
    if flag in ("-u", "--user", "--proxy-user"):
        return re.fullmatch(r"(?!\d+:\d+$)[^\s:/]+:[^\s/].*", item) is not None
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


def _looks_random(run: str) -> bool:
    """Pieces of words are longer than those of a random text. 16 digits of hexadecimal have six letters among them."""
    for stretch in _STRETCH.findall(run):
        pieces = _PIECE.findall(stretch)
        longest = (4 if _HEX.fullmatch(stretch) else 3) * len(pieces)
        if len(pieces) > 2 and any(map(str.isdecimal, pieces)) and len(stretch) < longest:
            return True
    return False


def _decoded(text: str) -> str | None:
    """The text in Base64; None if it is something else."""
    if not _BASE64.fullmatch(text):
        return None
    packed = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(packed + "=" * (-len(packed) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _is_bounded(document: Any) -> bool:
    """Whether a document can be judged: aliases of YAML make a short text as large as they like."""
    values, count = [(document, 0)], 0
    while values:
        value, depth = values.pop()
        count += 1
        if count > MOST_VALUES or depth > DEEPEST:
            return False
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        values.extend((one, depth + 1) for one in inner)
    return True


def _parsed(text: str) -> tuple[Any, Callable[[Any], str]]:
    """The document in a text, and what writes one of its kind; None if it has no names with values."""
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError):
            return json.loads(text, object_pairs_hook=_pairs), json.dumps
    if len(text) > LONGEST_DOCUMENT or not _DOCUMENT.search(text) or not ("\n" in text or text[0] in "{["):
        return None, json.dumps
    # A query of PromQL begins with a bracket, too.
    for parse in (_yaml,) if _OF_SECRET.search(text) or text.lstrip()[:1] == "{" else (_yaml, _toml, _ini):
        with suppress(ValueError):
            document = parse(text)
            if document and isinstance(document, dict | list):
                return document, _yaml_text
    return None, json.dumps


def _pairs(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """A mapping in which a name that stands there twice has both values."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        key = str(name)
        while key in found:
            key += " "
        found[key] = value
    return found


def _yaml(text: str) -> Any:
    """The documents of YAML, also of a template. Raises: ValueError."""
    if "yaml" not in globals():
        raise ValueError("no parser")
    try:
        documents = _documents(text)
    except ValueError:
        if "{{" not in text:
            raise
        documents = _documents(_TEMPLATE.sub(lambda action: "" if action[0].endswith("\n") else HIDDEN, text))
    return (
        documents[0]
        if len(documents) == 1
        else [document for document in documents if isinstance(document, dict | list)]
    )


def _documents(text: str) -> list[Any]:
    class Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
        """All scalars are texts, and unknown tags are no error."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
            one: Callable[[Any], Any] = lambda inner: self.construct_object(inner, deep=True)  # noqa: E731
            return _pairs((one(key), one(value)) for key, value in node.value)

    try:
        return list(yaml.load_all(str.__str__(text), Loader))  # no text of Ansible's own type
    except yaml.YAMLError as err:
        if "nesting depth" in str(err):
            raise RecursionError from err
        raise ValueError("not YAML") from err


def _yaml_text(document: Any) -> str:
    if "yaml" in globals():
        return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=150))
    return json.dumps(document)


def _toml(text: str) -> Any:
    return tomllib.loads(text) if "tomllib" in globals() else None


def _ini(text: str) -> Any:
    """The sections of INI, and what stands before the first one. Raises: ValueError."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(f"[.]\n{text}")
    except (configparser.Error, AttributeError) as err:  # the latter for a second line of a name without a value
        raise ValueError("not INI") from err
    sections = {name: parser[name] for name in parser.sections()}
    return {name: {key: (text or "").strip("\"'") for key, text in sections[name].items()} for name in sections}
