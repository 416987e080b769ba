"""Secrets to plant in options: each place that upstream calls a secret, in each carrier that values have.

The places are those of tests/secret_names.yml, which tools/record_secrets.py read from the sources of the charts.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import yaml

PLANT = "Pl4nted-Secret"
LOGIN = f"https://reader:{PLANT}@metrics.example:9443"
RECORD = yaml.safe_load(Path(__file__).with_name("secret_names.yml").read_text())
PLACES: list[str] = sorted({place for record in RECORD["secrets"].values() for place in record["places"]})
# Last names that are a secret only at their place: `url` of a webhook, `key` of TLS, entries of a Secret.
BY_PLACE = ("*", "url", "key", "secrets[]")
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{PLANT}\n-----END RSA PRIVATE KEY-----\n"
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"user": PLANT}}


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


# Texts that are secrets by themselves.
TEXTS = {
    "private key": PEM,
    "login": LOGIN,
    "signed address": f"https://storage.example/x?sv=2026&sig={PLANT}%3D&x=1",
    "token in an address": f"https://metrics.example/api?token={PLANT}",
    "bearer": f"Authorization: Bearer {PLANT}",
    "header as an argument": f"curl -H 'X-Api-Key: {PLANT}' https://metrics.example",
    "login as an argument": f"curl -u me:{PLANT} https://metrics.example",
    "argument": f"run --password={PLANT} --verbose",
    "argument with a blank": f"run --api-token {PLANT}",
    "connection string": f"Server=db;User Id=me;Password={PLANT};Timeout=5",
    "signed address of S3": f"https://b.s3.example/k?X-Amz-Date=1&X-Amz-Signature={PLANT}",
    "key in Base64 in a line": f"run --tls-key={encoded(PEM)} --verbose",
    "JSON in a sentence": f'it has {{"password": "{PLANT}"}} here',
    "JSON in JSON": json.dumps(json.dumps({"password": PLANT})),
    "XML": f"<login><user>me</user><password>{PLANT}</password></login>",
    "netrc": f"machine db.example login me password {PLANT}",
    "argument of sshpass": f"sshpass -p {PLANT} ssh me@db.example",
    "argument of mysql": f"mysql -u root -p{PLANT} grafana",
    "argument of docker": f"docker login -u me -p {PLANT} registry.example",
    "argument of redis": f"redis-server --requirepass {PLANT} --port 1",
    "login as another argument": f"skopeo copy --dest-creds me:{PLANT} docker://x",
    "login of a database": f"exporter:{PLANT}@(mysql.db:3306)/",
    "login of a database with its protocol": f"root:{PLANT}@tcp(db:3306)/grafana",
    "login of a proxy": f"me:{PLANT}@proxy.example:3128",
    "header of a proxy": f'proxy_set_header X-Api-Key "{PLANT}";',
    "header without quotes": f"Header Ocp-Apim-Subscription-Key {PLANT}",
    "default of a variable": f"${{DB_PASSWORD:-{PLANT}}}",
    "hash of a password": f"me:$2y$10${PLANT}",
    "webhook": f"https://hooks.slack.com/services/T0/B0/{PLANT}",
    "issued token": f"hf_{PLANT}".replace("-", "0") + PLANT,
}


def at(place: str, value: Any) -> Any:
    """The value at a place, in mappings and lists."""
    for part in reversed(place.split(".")):
        name = part.removesuffix("[]").replace("%", ".").replace("*", "entry")
        value = {name: [value] if part.endswith("[]") else value}
    return value


def table(holder: Any) -> str:
    """The innermost names of a holder as a section of INI or TOML."""
    section = "main"
    while True:
        holder = holder[0] if isinstance(holder, list) else holder
        [(name, inner)] = holder.items()
        if isinstance(inner, str):
            return f'# of {section}\n[{section}]\nmode = "x"\n{name} = "{inner}"\n'
        section, holder = name, inner


# What is made of a holder, by the name of the carrier.
CARRIERS: dict[str, Callable[[Any], Any]] = {
    "mapping": lambda holder: holder,
    "list": lambda holder: [{"name": "first"}, holder],
    "YAML": lambda holder: {"config": yaml.safe_dump(holder) + "mode: x\n"},
    "YAML in YAML": lambda holder: {"config": yaml.safe_dump({"files": {"a.yaml": yaml.safe_dump(holder)}})},
    "template": lambda holder: {"config": "name: {{ .Release.Name }}\n" + yaml.safe_dump(holder)},
    "documents": lambda holder: {"config": f"---\nkind: ConfigMap\n---\n{yaml.safe_dump(holder)}"},
    "JSON": lambda holder: {"config": json.dumps(holder)},
    "JSON in lines": lambda holder: {"config": json.dumps({"mode": "x", "of": holder}, indent=2)},
    "Base64": lambda holder: {"config": encoded(yaml.safe_dump(holder) + "mode: x\n")},
    "Base64 of JSON": lambda holder: {"config": encoded(json.dumps(holder))},
}
# Carriers of a name alone, without what is above it.
NAMED: dict[str, Callable[[str], Any]] = {
    "INI": lambda name: {"config": table({"main": {name: PLANT}}).replace('"', "")},
    "TOML": lambda name: {"config": table({"servers": [{name: PLANT}]}).replace("[servers]", "[[servers]]")},
    "TOML in one line": lambda name: {"config": f'mode = "x"\nauth = {{ {name} = "{PLANT}" }}\n'},
    "variable": lambda name: {"env": [{"name": name.upper(), "value": PLANT}]},
    "variable in YAML": lambda name: {"config": yaml.safe_dump({"env": [{"name": name.upper(), "value": PLANT}]})},
    "argument": lambda name: {"args": [f"--{name}={PLANT}"]},
    "two arguments": lambda name: {"args": [f"--{name}", PLANT]},
    "query": lambda name: {"url": f"https://metrics.example/api?x=1&{name}={PLANT}&y=2"},
    "header": lambda name: {"headers": {f"X-{name.replace('_', '-').title()}": PLANT}},
    "line": lambda name: {"config": f"# see the manual: {{{{\n{name}: {PLANT}\n"},
}
# Texts stand where any text may stand.
OF_TEXTS = ("mapping", "list", "YAML", "JSON", "Base64", "template", "YAML in YAML")


# Texts of which another text is made: a public name has the value.
NAMES_BEFORE: dict[str, Callable[[str], str]] = {
    "argument": lambda text: f"run --set={text}",
    "argument of a name": lambda text: f"run --set=main.value={text}",
    "variable": lambda text: f"Environment=OPTIONS={text}",
    "quoted variable": lambda text: f'OPTIONS="-v {text}" run',
    "variable in a shell": lambda text: f"sh -c 'OPTIONS=\"{text}\" run'",
}


def _generated() -> Iterator[tuple[str, Any]]:
    for place in PLACES:
        for carrier, carry in CARRIERS.items():
            yield f"{place} ({carrier})", carry(at(place, PLANT))
    for name in sorted({place.rpartition(".")[2] for place in PLACES} - {*BY_PLACE}):
        for carrier, named in NAMED.items():
            yield f"{name} ({carrier})", named(name)
    for what, text in TEXTS.items():
        for carrier in OF_TEXTS:
            yield f"{what} ({carrier})", CARRIERS[carrier]({"text": text})
        for before, name in NAMES_BEFORE.items():
            if not set(text) & set("\n\"'"):
                yield f"{what} after a public name ({before})", {"args": [name(text)]}
    for before, name in NAMES_BEFORE.items():
        yield f"name after a public name ({before})", {"args": [name(f"grafana.adminPassword={PLANT}")]}
    for carrier, carry in CARRIERS.items():
        yield f"Secret ({carrier})", carry({"manifests": [SECRET]})
        yield f"Secret in Base64 ({carrier})", carry({"manifests": [{**SECRET, "data": {"user": encoded(PLANT)}}]})
    yield "Secret in a template", {"manifests": ["{{ if .x }}\n" + yaml.safe_dump(SECRET) + "{{ end }}\n"]}
    yield "Secret that is not YAML", {"manifests": ["kind: Secret\nstringData: [\n" + PLANT]}
    deep: Any = {"password": PLANT}
    for _text in range(12):
        deep = {"mode": "x", "config": yaml.safe_dump(deep) + "end: x\n"}
    yield "texts in texts", deep
    for name in ("data", "stringData"):
        yield f"list of Secrets ({name})", {"extraSecrets": [{"name": "login", name: {"user": PLANT}}]}
        yield f"Secret of a chart ({name})", {"extraSecret": {"name": "login", name: {"user": PLANT}}}
    for name in ("secretEnv", "secretData", "secretStringData"):
        yield f"map of secrets ({name})", {name: {"FIRST": PLANT}}
    yield "list of secrets", {"secrets": [{"name": "first", "value": PLANT}]}
    yield "several values of a name", {"headers": [{"name": "X-Api-Key", "values": [PLANT]}]}
    yield "key in Base64", {"tls": {"key": encoded(PEM)}}
    yield "login in two arguments", {"args": ["-u", f"me:{PLANT}"]}
    yield "basic", {"headers": {"X": f"Basic {encoded('me:' + PLANT)}"}}


GENERATED: dict[str, Any] = dict(_generated())


def _rotated() -> Iterator[tuple[str, Any]]:
    """Of each carrier one holder, each with another place."""
    places = count()
    for carrier in dict.fromkeys(name.rpartition(" (")[2] for name in GENERATED):
        names = [name for name in GENERATED if name.rpartition(" (")[2] == carrier]
        name = names[7 * next(places) % len(names)]
        yield name, GENERATED[name]


# For tests of which each case takes its time.
HOLDERS: dict[str, Any] = {"password": {"grafana": {"adminPassword": PLANT}}} | dict(_rotated())

# For variables, which Ansible would resolve.
VALUES: dict[str, Any] = {
    f"planted{number}": holder
    for number, holder in enumerate(value for value in HOLDERS.values() if "{{" not in json.dumps(value))
}


def hides(shown: str) -> bool:
    """Whether a text has the secret neither as it is nor in Base64."""
    packed = [run[: len(run) // 4 * 4] for run in re.findall(r"[A-Za-z\d+/]{12,}", shown)]
    return not any(PLANT.encode() in text for text in (shown.encode(), *map(b64decode, packed)))


def each_holder(kind: str, elements: str = "dict") -> Iterator[tuple[str, Any]]:
    """Values of an option of this type that hold the secret."""
    if kind in ("dict", "raw"):
        yield from ((name, value) for name, value in HOLDERS.items() if isinstance(value, dict))
        yield "Secret", SECRET
    elif kind == "list" and elements == "dict":
        yield from ((name, value if isinstance(value, list) else [value]) for name, value in HOLDERS.items())
    elif kind == "list" and elements == "str":
        yield from ((name, [text]) for name, text in TEXTS.items())
    elif kind == "str":
        yield "address", LOGIN
        yield "signed address", TEXTS["signed address"]


@contextmanager
def watched_processes() -> Iterator[list[str]]:
    """Command lines of this machine that have the secret, as long as the block runs: whoever looks can read them."""
    seen: list[str] = []
    ended = Event()

    def look() -> None:
        while not ended.wait(0.005):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    seen.extend([line] * (PLANT in line))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
