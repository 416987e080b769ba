"""One function says what a secret is, for results, differences, verbose output, Git folders and reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import (
    HIDDEN,
    Secret,
    is_secret_name,
    masked_texts,
    redacted,
    secrets_in,
    without_login,
)

PLANT = "Pl4nted.Secret"
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
        *("tls/password", "auth.generic_oauth.client_secret", "env.HF_TOKEN"),
    ],
)
def test_a_name_that_holds_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("secretName", "existingSecret", "secretKeyRef", "tokenPath", "passwordKey", "auth_password_file", "tokenURL"),
        *("token_url", "usernameKey", "imagePullSecrets", "tls_secret", "configSecret", "secretNamespace", "labelKey"),
        *("automountServiceAccountToken", "passwordPolicy", "key", "topologyKey", "tokenizer", "author", "compass"),
        *("url", "user", "username", "AWS_ACCESS_KEY_ID", "token_id", "public_key", "bypass", "authority", "metric"),
    ],
)
def test_a_name_that_is_public(name: str) -> None:
    assert not is_secret_name(name)


HOLDERS: dict[str, Any] = {
    "by its name": {"grafana": {"adminPassword": PLANT}},
    "by a name above": {"credentials": {"reader": PLANT, "others": [PLANT]}},
    "in a list": {"receivers": [{"slack_configs": [{"api_url": PLANT}]}]},
    "of PagerDuty": {"pagerduty_configs": [{"routing_key": PLANT}]},
    "of Alertmanager's webhook": {"receivers": [{"webhook_configs": [{"url": f"https://chat.example/{PLANT}"}]}]},
    "a container's variable": {"env": [{"name": "DB_PASSWORD", "value": PLANT}]},
    "a header": {"headers": [{"name": "Authorization", "value": PLANT}]},
    "an option of Helm": {"parameters": [{"name": "grafana.adminPassword", "value": PLANT}]},
    "a group of variables": {"envRenderSecret": {"GF_RENDERING_KEY": PLANT}},
    "a Secret": {"kind": "Secret", "metadata": {"name": "login"}, "stringData": {"user": PLANT}},
    "a login": {"remoteWrite": [{"url": f"https://reader:{PLANT}@metrics.example/write"}]},
    "a login without a name": {"url": f"https://{PLANT}@git.example/fleet.git"},
    "a login with an @": {"url": f"postgres://grafana:p@{PLANT}@db.example/grafana"},
    "an argument": {"args": ["--web", f"--password={PLANT}"]},
    "an argument and the next": {"args": ["--api-token", PLANT]},
    "a command line": {"command": f"run --api-key {PLANT} --verbose"},
    "a quoted assignment": {"script": f"export TOKEN='{PLANT}'"},
    "a connection string": {"db": f"Server=db;User Id=me;Password={PLANT};Timeout=5"},
    "a storage account": {"db": f"AccountName=a;AccountKey={PLANT}"},
    "a query": {"url": f"https://metrics.example/api?token={PLANT}&x=1"},
    "a block of YAML": {"config": f"route: {{}}\nreceivers:\n- name: a\n  password: {PLANT}\n"},
    "a variable in such a block": {"tpl": f"env:\n- name: DB_PASSWORD\n  value: {PLANT}\n"},
    "what was applied last": {"applied": json.dumps({"env": [{"name": "DB_PASSWORD", "value": PLANT}]})},
    "a header in a text": {"curl": f"-H 'Authorization: Bearer {PLANT}'"},
    "Slack's address": {"text": f"posts to https://hooks.slack.com/services/T0/B0/{PLANT}"},
    "a private key": {"tls": {"key": f"-----BEGIN RSA PRIVATE KEY-----\n{PLANT}\n-----END RSA PRIVATE KEY-----"}},
    "a number": {"adminPassword": 12345678},
    "a key of the kubeconfig": {"user": {"client-key-data": PLANT, "token": PLANT}},
}


@pytest.mark.parametrize("value", HOLDERS.values(), ids=HOLDERS.keys())
def test_a_secret_is_hidden_wherever_it_is(value: Any) -> None:
    shown = json.dumps(redacted(value))
    assert HIDDEN in shown
    assert PLANT not in shown
    assert "12345678" not in shown
    assert redacted(redacted(value)) == redacted(value)
    assert secrets_in(value)


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
