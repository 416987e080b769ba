"""Records what upstream calls a secret, in tests/secret_names.yml: `python tools/record_secrets.py FOLDER`.

FOLDER has checkouts as NAME@COMMIT: alertmanager, common, prometheus, helm-charts (of prometheus-community) and
grafana-charts (grafana-community/helm-charts). A place is a path of names: `[]` is an entry of a list, `*` any name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import indented_yaml
import yaml

RECORDED = Path(__file__).parents[1] / "tests" / "secret_names.yml"
SOURCES = {
    "alertmanager": "prometheus/alertmanager, fields of type Secret and SecretURL",
    "common": "prometheus/common, config/, fields of type Secret",
    "prometheus": "prometheus/prometheus, discovery/ and storage/, fields of type Secret",
    "grafana": "grafana-community/helm-charts, charts/grafana, sensitiveKeys of templates/_helpers.tpl",
    "charts": "the charts of both, values that a template writes into a Secret",
}
REFERENCES = "kube-prometheus-stack, charts/crds, fields with the properties key, name and optional"
# Where a struct of Go stands in a configuration, if its name does not say it.
STRUCTS = {
    "GlobalConfig": "global",
    "WebhookOutputConfig": "event_recorder.webhook_outputs[]",
    "Header": "http_headers.*",
    "BasicAuth": "basic_auth",
    "Authorization": "authorization",
    "OAuth2": "oauth2",
    "HTTPClientConfig": "http_config",
    "TLSConfig": "tls_config",
    "OAuthConfig": "azuread.oauth",
    "CertificateConfig": "azuread.certificate",
    "MSTeamsConfig": "msteams_configs[]",
    "MSTeamsV2Config": "msteamsv2_configs[]",
    "OpsGenieConfig": "opsgenie_configs[]",
    "VictorOpsConfig": "victorops_configs[]",
}
# Values of which only a part is secret, or which are public: configurations, certificates.
DOCUMENTS = re.compile(
    r"(?:[cC]onfigs?|templateFiles|alerting|datasources|notifiers|certificate|[aA]nnotations|labels|name|enabled?"
    r"|[sS]ecretsAnnotations)$"
)
# What the chart of Grafana writes by its helpers, and hands to Grafana's datasources.
BY_HELPERS = ("adminPassword", "datasources.*.datasources[].secureJsonData.*", "envRenderSecret.*")


def fields_of(folder: Path) -> Iterator[str]:
    """Places of secret fields in the structs of Go below a folder."""
    for path in sorted(folder.rglob("*.go")):
        struct = ""
        for line in path.read_text().splitlines() if not path.stem.endswith("_test") else ():
            if begun := re.match(r"type (\w+) struct", line):
                struct = begun[1]
            if secret := re.search(r"(\[\])?\*?(?:\w+\.)?Secret\w*\s+`(?:yaml|json):\"(\w+)", line):
                yield f"{place_of(struct, path)}.{secret[2]}{secret[1] or ''}"


def place_of(struct: str, path: Path) -> str:
    if struct in STRUCTS:
        return STRUCTS[struct]
    name = struct.removesuffix("Config").removesuffix("SD").lower() or path.stem
    return f"{name}_sd_configs[]" if "SDConfig" in struct else f"{name}_configs[]"


def chart_values(chart: Path) -> Iterator[str]:
    """Places of values that a template of a chart writes into the data of a Secret."""
    for path in sorted((chart / "templates").rglob("*.yaml")):
        text = path.read_text()
        if re.search(r"^ *kind: Secret$", text, re.M):
            data = text[text.index("data:") :]
            ranged = set(re.findall(r"range [^}]*\.Values\.([\w.]+)", data))
            named = set(re.findall(r"\.Values\.([\w.]+)", data)) - ranged
            inner = {f"{name}.secret.*" for name in named if "with" in text and f"with .Values.{name}" in text}
            found = {f"{name}.*" for name in ranged if not DOCUMENTS.search(name)}
            found |= {re.sub(r"(Config\.secret)$", r"\1.*", name) for name in named if not DOCUMENTS.search(name)}
            yield from sorted(found | {name for name in inner if not re.search(r"\b(?:annotations|labels)\.", name)})


def references(crds: Path) -> set[str]:
    """Names of fields in the operator's kinds that select a key of a Secret."""
    found: set[str] = set()

    def walk(name: str, schema: Any) -> None:
        if isinstance(schema, dict):
            properties = schema.get("properties") or {}
            found.update([name] if set(properties) == {"key", "name", "optional"} else [])
            for inner, part in properties.items():
                walk(inner, part)
            walk(name, schema.get("items"))
            walk(name, schema.get("additionalProperties"))

    for path in sorted(crds.glob("crd-*.yaml")):
        for version in yaml.load(path.read_text(), yaml.BaseLoader)["spec"]["versions"]:
            walk("", version["schema"]["openAPIV3Schema"])
    return {name for name in found if not name.startswith("configMap")}


def main() -> None:
    checkouts = {path.name.partition("@")[0]: path for path in Path(sys.argv[1]).glob("*@*")}
    charts, grafana = checkouts["helm-charts"] / "charts", checkouts["grafana-charts"] / "charts" / "grafana"
    keys = re.findall(r"path: \[\"([\w.]+)\", \"(\w+)\"\]", (grafana / "templates" / "_helpers.tpl").read_text())
    stack = charts / "kube-prometheus-stack"
    places = {name: sorted(set(fields_of(checkouts[name]))) for name in ("alertmanager", "common", "prometheus")}
    places["grafana"] = sorted(f"{section.replace('.', '%')}.{key}" for section, key in keys)
    of_charts = {f"grafana.{place}" for place in (*chart_values(grafana), *BY_HELPERS)}
    for chart in (stack, *(charts / name for name in ("prometheus-adapter", "kube-state-metrics"))):
        of_charts |= set(chart_values(chart))
    places["charts"] = sorted(of_charts)
    record = {
        "read": str(datetime.now(UTC).date()),
        "commits": {name: path.name.partition("@")[2] for name, path in sorted(checkouts.items())},
        "secrets": {name: {"source": SOURCES[name], "places": found} for name, found in places.items()},
        "references": {"source": REFERENCES, "names": sorted(references(stack / "charts" / "crds" / "crds"))},
    }
    head = "---\n# What upstream calls a secret, by tools/record_secrets.py. `%` is a dot in a name.\n"
    RECORDED.write_text(head + indented_yaml.dump(record))


if __name__ == "__main__":
    main()
