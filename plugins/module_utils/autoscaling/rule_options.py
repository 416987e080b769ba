# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..kube.labels import DEFAULT_INVENTORY
from ..secrets import without_login
from . import defaults
from .inputs import INPUTS, Labels, Selectors
from .kube_names import DNS_LABEL
from .manifests import RuleOptions
from .options import Options, shown
from .raw_metrics import check_labels

# Prometheus has durations of days and longer, but a rule of this collection that waits for hours is useless.
_LONGEST_INTERVAL_S = 3600
# Prometheus' durations, unlike those of Kubernetes.
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def rule_options(given: Mapping[str, Any], path: str = "", inventory: str = DEFAULT_INVENTORY) -> RuleOptions:
    """Parses the options of recording rules, with defaults.

    Raises: HopError if the API server or Prometheus would reject the rules because of an option.
    """
    known = ("rule_namespace", "rule_labels", "evaluation_interval", "selectors", "prometheus_url")
    options = Options(given, known, path)
    default = RuleOptions()
    check_labels(options, "rule_labels")
    return RuleOptions(
        namespace=options.text("rule_namespace", default.namespace, DNS_LABEL) or default.namespace,
        labels=options.raw("rule_labels", default.labels),
        evaluation_interval_s=options.whole(
            "evaluation_interval", 1, _LONGEST_INTERVAL_S, default.evaluation_interval_s
        ),
        selectors=_selectors(options),
        inventory=inventory,
        prometheus_url=options.text("prometheus_url", default.prometheus_url),
    )


def url_without_login(prometheus: Mapping[str, Any]) -> str:
    """Prometheus' address inside the cluster; empty if it needs a login or has the certificate of a private CA.

    prometheus: the modules' option; missing fields have their defaults.
    """
    given = {option: value for option, value in prometheus.items() if value is not None}
    if url := str(given.get("url", "")):
        has_login = bool(given.get("bearer_token")) or without_login(url) != url
        return "" if has_login or given.get("ca_cert") else url.rstrip("/")
    service, namespace = given.get("service", defaults.SERVICE), given.get("namespace", defaults.NAMESPACE)
    path = given.get("path_prefix", "").strip("/")
    place = f"{service}.{namespace}.svc:{given.get('port', defaults.PORT)}"
    return f"{given.get('scheme', 'http')}://{place}" + (f"/{path}" if path else "")


def _selectors(options: Options) -> Selectors:
    """Labels of scrape targets by input."""
    given = options.options("selectors", INPUTS)
    return {name: _labels(given, name) for name in given} if given else {}


def _labels(options: Options, name: str) -> Labels:
    labels = options.raw(name)
    if not isinstance(labels, Mapping):
        raise options.error(name, f"is {shown(labels)}, not a mapping", "write label: value")
    for label, value in labels.items():
        if not isinstance(label, str) or not _LABEL_NAME.fullmatch(label):
            raise options.error(name, f"has the label {shown(label)}", "use a label of the targets in Prometheus")
        values = value if isinstance(value, list) and value else [value]
        if not all(isinstance(text, str) for text in values):
            raise options.error(f"{name}.{label}", f"is {shown(value)}", "set it to text in quotes, or a list of texts")
    return labels
