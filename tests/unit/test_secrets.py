"""One function says what a secret is, for results, differences, verbose output, Git folders and reports."""

from __future__ import annotations

import json
import re
import secrets
import string
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import (
    HIDDEN,
    SECRET_KEYS,
    Secret,
    is_secret_name,
    masked_texts,
    random_texts_in,
    redacted,
    secrets_in,
    without_login,
)
from collection import ROOT
from planted import BY_PLACE, CARRIERS, GENERATED, LOGIN, PLACES, PLANT, RECORD, TEXTS, hides

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "password",
            "adminPassword",
            "GF_DATABASE_PASSWORD",
            "PGPASSWORD",
            "admin-password",
            "smtp.passwd",
            "api_pwd",
        ),
        *("token", "bearer_token", "githubToken", "credentials", "apiKey", "APIKey", "API_KEY", "apikey", "X-Api-Key"),
        *("client_secret", "clientSecret", "secret_access_key", "secretKey", "api_url", "apiURL", "webhook_url"),
        *("routing_key", "user_key", "service_key", "private_key", "AccountKey", "SharedAccessKey", "Authorization"),
        *("auth", "cookie", "DATABASE_DSN", "connectionString", "client-key-data", ".dockerconfigjson", "htpasswd"),
        *("auth_secret", "smtp_auth_secret", "token_id", "client_certificate_key", "consumer_key", "gpgKey"),
        *("X-Honeycomb-Team", "tls/password", "auth.generic_oauth.client_secret", "env.HF_TOKEN"),
    ],
)
def test_a_name_that_holds_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("secretName", "existingSecret", "secretKeyRef", "tokenPath", "passwordKey", "auth_password_file", "tokenURL"),
        *("token_url", "usernameKey", "imagePullSecrets", "tls_secret", "configSecret", "secretNamespace", "labelKey"),
        *("nginx.ingress.kubernetes.io/auth-secret", "keySecret", "envFromSecret"),
        *("automountServiceAccountToken", "passwordPolicy", "key", "topologyKey", "tokenizer", "author", "compass"),
        *("url", "user", "username", "AWS_ACCESS_KEY_ID", "public_key", "bypass", "authority", "metric"),
    ],
)
def test_a_name_that_is_public(name: str) -> None:
    assert not is_secret_name(name)


def test_the_places_are_those_of_upstream() -> None:
    assert len(PLACES) > 90
    assert {"global.smtp_auth_secret", "auth%ldap.bind_password", "tls.key", "http_headers.*.secrets[]"} <= {*PLACES}
    assert len(GENERATED) > 1500


@pytest.mark.parametrize("name", GENERATED)
def test_a_secret_is_hidden_wherever_it_is(name: str) -> None:
    value = GENERATED[name]
    shown = redacted(value)
    assert HIDDEN in json.dumps(shown)
    assert hides(json.dumps(shown))
    assert redacted(shown) == shown
    assert secrets_in(value)


NAMES = sorted(
    {place.rpartition(".")[2] for place in PLACES} - {*BY_PLACE} | {f"{word}_key" for word in SECRET_KEYS.split("|")}
)
FORMS: dict[str, Callable[[str], str]] = {
    "name": str,
    # `secrets: [a]` is a list of names.
    "plural": lambda name: name if name.endswith("s") or name == "secret" else f"{name}s",
    "joined": lambda name: name.replace("_", ""),
    "plural joined": lambda name: FORMS["plural"](FORMS["joined"](name)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_a_secret_is_hidden_by_each_form_of_its_name(name: str, form: str) -> None:
    for written in (FORMS[form](name), FORMS[form](name).upper()):
        texts: list[Any] = [{written: PLANT}, {written: [PLANT]}, {"args": [f"--{written}", PLANT]}]
        named = [{"env": [{"name": written, key: PLANT}]} for key in ("value", "data", "default")]
        capitals = [{"env": [{"Name": written, "Value": PLANT}]}]
        assert [value for value in texts + named + capitals if not hides(json.dumps(redacted(value)))] == []


PROMQL = [
    f"kube_secret_info{{{label}{operator}'x', {label}{operator}\"login.*\"}} > 0".replace("'", quote)
    for quote in "\"'"
    for label, operators in {"secret": ("=", "!=", "=~", "!~"), "token": ("!=", "=~", "!~")}.items()
    for operator in operators
]


@pytest.mark.parametrize(
    "query", [*PROMQL, *(query[query.index("{") :] for query in PROMQL), "a:b @ end()", "a:b@end()"]
)
def test_a_query_stays(query: str) -> None:
    for value in ({"expr": query}, {"rules": f"groups:\n- expr: |\n    {query}\n"}):
        assert redacted(value) == value


# Pieces that a pattern may begin with at each of their places.
LONG = [
    *TEXTS.values(),
    *"a:=-@\\/.\"'<$",
    "a-",
    "a:",
    "a,",
    "a.",
    "-a ",
    "a:a,",
    "://",
    "mysql ",
    "login ",
    "me:x@",
    '"a',
    "${a",
    "X-",
    "X-A ",
]


@pytest.mark.parametrize("piece", [*LONG, "random"])
def test_a_long_text_takes_little_time(piece: str) -> None:
    text = secrets.token_urlsafe(150_000) if piece == "random" else piece * (200_000 // len(piece))
    began = time.process_time()
    redacted({"config": text})
    assert time.process_time() - began < 8


# What the generated ones have not.
OTHERS: dict[str, Any] = {
    "by a name above": {"credentials": {"reader": PLANT, "others": [PLANT]}},
    "a header": {"headers": [{"name": "Authorization", "value": PLANT}]},
    "an option of Helm": {"parameters": [{"name": "grafana.adminPassword", "value": PLANT}]},
    "a login without a name": {"url": f"https://{PLANT}@git.example/fleet.git"},
    "a login with an @": {"url": f"postgres://grafana:p@{PLANT}@db.example/grafana"},
    "a storage account": {"db": f"AccountName=a;AccountKey={PLANT}"},
    "a number": {"adminPassword": 12345678},
    "a key of the kubeconfig": {"user": {"client-key-data": PLANT, "token": PLANT}},
    "a list of Secrets": {"kind": "SecretList", "items": [{"data": {"user": PLANT}}]},
    "a name twice in JSON": {"config": f'{{"password": "{PLANT}", "password": ""}}'},
    "a comment": {"config": f"mode: x\n# password: {PLANT}\n"},
    "an unknown tag": {"config": f"key: !vault x\npassword: !vault\n  {PLANT}\n"},
    "a value on the next line": {"config": f"[smtp]\nhost = x\npassword =\n  {PLANT}\n"},
    "a header's argument": {"args": ["--header", f"X-Api-Key: {PLANT}"]},
    "a login in a name": {"registries": {LOGIN: {"mode": "x"}}},
    "two logins in names": {"registries": {LOGIN: "x", LOGIN.replace("reader", "other"): "x"}},
    "a login in a name of JSON": {"config": json.dumps({LOGIN: "x"})},
    "a line of a configuration": {"config": f"port 1\nrequirepass {PLANT}\n"},
    "another name of a user": {"args": [f"--user=me:{PLANT}"]},
}


@pytest.mark.parametrize("value", OTHERS.values(), ids=OTHERS.keys())
def test_other_secrets_are_hidden(value: Any) -> None:
    shown = json.dumps(redacted(value))
    assert HIDDEN in shown
    assert hides(shown)
    assert "12345678" not in shown
    assert redacted(redacted(value)) == redacted(value)
    assert secrets_in(value)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + above] * 10)}]\n" for above, name in pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: " + "[" * 2000 + PLANT + "]" * 2000 + "\nmode: x\n",
        '{"a":' * 500 + f'"{PLANT}"' + "}" * 500,
        f"password: >\n  {PLANT}\n" + "a: b\n" * 300_000,
    ],
    ids=["aliases", "brackets", "mappings", "length"],
)
def test_a_text_that_cannot_be_judged_is_hidden(text: str) -> None:
    began = time.process_time()
    assert redacted({"config": text}) == {"config": HIDDEN}
    assert time.process_time() - began < 10


@pytest.mark.parametrize("name", RECORD["references"]["names"])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_reference_of_the_operators_kinds_stays(name: str, carrier: str) -> None:
    value = CARRIERS[carrier]({"spec": {name: {"name": "login", "key": "entry"}}})
    assert redacted(value) == value
    assert secrets_in(value) == []


@pytest.mark.parametrize(
    "token", [JWT, "hf_AbCdEfGhIjKlMnOpQrSt", "ghp_AbCdEfGhIjKlMnOpQrSt", "nvapi-AbCdEfGhIjKlMnOpQrSt"]
)
def test_a_token_is_known_by_its_shape(token: str) -> None:
    assert redacted({"args": [f"pull with {token} now"]}) == {"args": [f"pull with {HIDDEN} now"]}


@pytest.mark.parametrize(
    "value",
    [
        {"grafana": {"admin": {"existingSecret": "login", "passwordKey": "password"}}},
        {"auth_password_file": "/etc/x", "adminPassword": "", "automountServiceAccountToken": True},
        {"url": "https://metrics.example:443/x@y", "repo": "ssh://git@git.example/fleet.git"},
        {"basicAuth": {"username": {"name": "login", "key": "user"}, "password": {"name": "login", "key": "password"}}},
        {"env": [{"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]},
        {"env": [{"name": "URL", "value": "postgres://me:$(DB_PASSWORD)@db/x"}], "password": "$__file{/etc/secrets/x}"},
        {"volumes": [{"name": "x", "secret": {"secretName": "x", "defaultMode": 420}}]},
        {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3600, "audience": "vault"}}]},
        {"secrets": ["slack"], "imagePullSecrets": [{"name": "registry"}], "secret": {"create": True, "name": "x"}},
        {"args": ["--max-num-batched-tokens=8192", "--max-tokens", "512", "--tokenizer-mode=auto"], "max_tokens": 512},
        {"expr": 'sum by (pod) (rate(vllm:generation_tokens_total[1m])) * kube_secret_info{secret="login"}'},
        {"password": "{{ .Values.password }}", "apiURL": "<secret>"},
        {"config": "# only a comment\npassword: {{ .Values.password }}\nmode: x\n", "tls": {"key": "# the key"}},
        {"admin": {"existingSecret": "", "userKey": "admin-user", "passwordKey": "admin-password"}},
        {"auth.github": {"token_url": "https://github.com/x", "api_url": "https://api.github.com/user"}},
        {"args": ["-u", "1000:1000", "docker run -u 1000:1000 --user app"], "basic": "Basic authentication is off"},
        {"manifests": ["kind: SecretProviderClass\nspec: {parameters: {objects: x}}\n"]},
        {
            "kind": "ExternalSecret",
            "spec": {"data": [{"secretKey": "a", "remoteRef": {"key": "b", "property": "token"}}]},
        },
        {"kind": "SealedSecret", "spec": {"encryptedData": {"password": "AgBx"}}},
        {"password": "${DB_PASSWORD}", "token": "${TOKEN:-}", "secret": "ENC[AES256_GCM,data:x]"},
        {"voters": "1@kafka-0:9093,2@kafka-1:9093", "image": "registry.example:5000/x:v1@sha256:9f86"},
        {"message": 'secrets "login" not found, set the X-Api-Key header'},
        {"message": "pod ml/chat-0: the token has expired, 3 of 4 pods=4"},
    ],
)
def test_a_reference_and_what_only_looks_alike_stay(value: Any) -> None:
    assert redacted(value) == value
    assert secrets_in(value) == []


def test_a_secret_has_its_place_and_text() -> None:
    values = {"env": [{"name": "API_KEY", "value": "first"}], "url": "https://me:second@metrics.example"}
    assert secrets_in(values) == [Secret("env[0] API_KEY", "first"), Secret("url", "me:second")]


def test_the_rest_of_a_text_stays() -> None:
    text = "run --password=x1 --user me --url https://me:x2@metrics.example/api?token=x3&days=4"
    shown = "run --password=(hidden) --user me --url https://(hidden)@metrics.example/api?token=(hidden)&days=4"
    assert redacted(text) == shown


def test_a_short_secret_and_a_number_mask_no_words() -> None:
    values = {"password": "admin", "token": "123456789", "client_secret": PLANT, "url": f"https://me:{PLANT}2@x"}
    assert masked_texts(values) == {PLANT, f"me:{PLANT}2", f"{PLANT}2"}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:p@ss@metrics.example:9090/x@y?z=1", "https://metrics.example:9090/x@y?z=1"),
        ("http://[::1]:9090", "http://[::1]:9090"),
        ("https://metrics.example", "https://metrics.example"),
    ],
)
def test_an_address_is_shown_without_its_login(address: str, shown: str) -> None:
    assert without_login(address) == shown


SIGNS = string.ascii_letters + string.digits
MAKERS: dict[str, Callable[[], str]] = {
    "hexadecimal": lambda: secrets.token_hex(16),
    "URL-safe": lambda: secrets.token_urlsafe(32),
    "Base64": lambda: b64encode(secrets.token_bytes(32)).decode(),
    "letters and digits": lambda: "".join(secrets.choice(SIGNS) for _ in range(32)),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_most_random_texts_are_found(maker: str) -> None:
    texts = [MAKERS[maker]() for _ in range(500)]
    assert sum(bool(random_texts_in({"team": text})) for text in texts) > 450
    assert sum(bool(random_texts_in({"config": f"mode: x\nteam: {text}\n"})) for text in texts) > 450
    assert not any(random_texts_in({"image": {"digest": f"sha256:{text}"}, "sha": text}) for text in texts)


def public_values() -> dict[str, str]:
    """Documents of the collection: values of the lab's charts, what roles hold, inventories, and blocks of pages."""
    globs = (
        "lab/charts/**/*.y*ml",
        "roles/*/vars/*.yml",
        "roles/*/files/**/*",
        "inventories/**/*.yml",
        "docs/**/*.yml",
    )
    # Git does not list the inventory of a lab that is up.
    command = ["git", "ls-files", *(f":(glob){pattern}" for pattern in globs)]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    paths = [ROOT / name for name in listed if name.endswith((".yml", ".yaml", ".json"))]
    found = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("roles/*/README.md")]:
        blocks = re.findall(r"^ *```(?:yaml|json|ini|toml)\n(.*?)^ *```", page.read_text(), re.M | re.S)
        found |= {f"{page.relative_to(ROOT)} {number}": block for number, block in enumerate(blocks)}
    return found


PUBLIC = public_values()


def test_the_collections_own_documents_are_asked() -> None:
    assert len(PUBLIC) > 150


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_public_looks_like_a_secret(name: str) -> None:
    value = {"config": PUBLIC[name]}
    assert random_texts_in(value) == []
    assert secrets_in(value) == []
