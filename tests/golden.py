"""Golden files: the exact text of what the collection makes. `python tests/golden.py` writes them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

GOLDEN = Path(__file__).parent / "unit" / "golden"

CASES: dict[str, dict[str, Any]] = {
    "gpu": {"namespace": "ml", "target": {"kind": "Deployment", "name": "chat"}, "max_replicas": 8},
    "gpu_util": {
        "name": "embeddings",
        "namespace": "ml",
        "target": {"kind": "StatefulSet", "name": "embed"},
        "metric": "gpu_util",
        "target_value": 72.5,
        "min_replicas": 2,
        "max_replicas": 6,
        "scale_up": {"tolerance": 0.05, "policies": [{"type": "Pods", "value": 4, "period_seconds": 15}]},
        "scale_down": {"stabilization_window_seconds": 600, "select_policy": "Max"},
        "extra_metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }
        ],
    },
    **{
        profile: {
            "namespace": "ml",
            "target": {"kind": "Deployment", "name": "chat"},
            "metric": profile,
            "max_replicas": 8,
        }
        for profile in ("gpu_compute", "gpu_memory", "mig", "shared", "llm")
    },
    "llm_in_flight": {
        "namespace": "ml",
        "target": {"kind": "Deployment", "name": "chat"},
        "metric": "llm_in_flight",
        "target_value": 24,
        "max_replicas": 8,
    },
    "object": {
        "namespace": "ml",
        "target": {"kind": "Deployment", "name": "chat"},
        "metric_type": "Object",
        "max_replicas": 8,
    },
    "demand": {
        "namespace": "ml",
        "target": {"kind": "Deployment", "name": "chat"},
        "max_replicas": 8,
        "demand": {
            "offered": 'requests_total{service="chat",outcome=~"served|rejected"}',
            "served": 'requests_total{service="chat",outcome="served"}',
            "prior_gpu_seconds": 0.05,
        },
    },
    "custom": {
        "namespace": "ml",
        "target": {"kind": "Rollout", "name": "chat"},
        "metric": {"name": "queue", "query": "max by (namespace, pod) (queue_length)"},
        "target_value": 5,
        "max_replicas": 3,
    },
}

# Made for KEDA as well. The others would be decided otherwise there.
KEDA_CASES = ("gpu", "llm")


class _Dumper(yaml.SafeDumper):
    """Queries as they are written, line by line."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def texts(case: str) -> dict[str, str]:
    """What the files of one case hold: the rules as Prometheus reads them, and the HPA."""
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler

    *rules, hpa = manifests([Autoscaler.from_params(CASES[case])], RuleOptions())
    return {f"{case}.rules.yaml": _dumped(_groups(rules)), f"{case}.hpa.yaml": _dumped(hpa)}


def keda_texts(case: str) -> dict[str, str]:
    """The same for KEDA: the rules beside those of `texts`, and the ScaledObject."""
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler

    _shared, *rules, scaled_object = manifests([Autoscaler.from_params(CASES[case], backend="keda")], RuleOptions())
    return {
        f"{case}.keda.rules.yaml": _dumped(_groups(rules)),
        f"{case}.scaledobject.yaml": _dumped(scaled_object),
    }


def _groups(rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"groups": [group for rule in rules for group in rule["spec"]["groups"]]}


def _dumped(content: dict[str, Any]) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False)


if __name__ == "__main__":
    from collection import install

    install()
    for case in CASES:
        made_for_keda = keda_texts(case) if case in KEDA_CASES else {}
        for name, text in {**texts(case), **made_for_keda}.items():
            (GOLDEN / name).write_text(text)
