# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from typing import Any

from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC

from .autoscaling import defaults
from .kube.labels import DEFAULT_INVENTORY

ArgSpec = dict[str, Any]

KUBE_AUTH: ArgSpec = AUTH_ARG_SPEC

INVENTORY: ArgSpec = {"inventory_id": {"type": "str", "default": DEFAULT_INVENTORY}}

_SCALING_RULES: ArgSpec = {
    "stabilization_window_seconds": {"type": "int"},
    "select_policy": {"type": "str", "choices": ["Max", "Min", "Disabled"]},
    "tolerance": {"type": "float"},
    "policies": {
        "type": "list",
        "elements": "dict",
        "options": {
            "type": {"type": "str", "required": True, "choices": ["Pods", "Percent"]},
            "value": {"type": "int", "required": True},
            "period_seconds": {"type": "int", "required": True},
        },
    },
}

_TARGET: ArgSpec = {
    "metric_type": {"type": "str", "choices": ["Pods", "Object", "External"]},
    "target_value": {"type": "float"},
    "target_values": {"type": "dict"},
}
# Sections of spec.metrics by their type.
_SECTIONS = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}

AUTOSCALERS: ArgSpec = {
    "autoscalers": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str"},
            "namespace": {"type": "str", "default": "default"},
            "target": {
                "type": "dict",
                "options": {
                    "kind": {"type": "str", "default": "Deployment"},
                    "name": {"type": "str", "required": True},
                    "api_version": {"type": "str"},
                },
            },
            "metric": {"type": "raw", "default": "gpu"},
            **_TARGET,
            "min_replicas": {"type": "int", "default": 1},
            "max_replicas": {"type": "int"},
            "priority": {"type": "int", "default": 0},
            "dead_time_seconds": {"type": "int"},
            "scale_up": {"type": "dict", "options": _SCALING_RULES},
            "scale_down": {"type": "dict", "options": _SCALING_RULES},
            "demand": {
                "type": "dict",
                "options": {
                    "source": {"type": "str", "choices": ["istio", "envoy_gateway", "ingress_nginx", "traefik"]},
                    "name": {"type": "str"},
                    "offered": {"type": "str"},
                    "served": {"type": "str"},
                    "prior_gpu_seconds": {"type": "float"},
                },
            },
            "extra_metrics": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "metric": {"type": "raw"},
                    **_TARGET,
                    "type": {"type": "str", "choices": [*_SECTIONS]},
                    **{section: {"type": "dict"} for section in _SECTIONS.values()},
                },
            },
            "adopt": {"type": "bool", "default": False},
            "backend": {"type": "str", "choices": ["adapter", "keda"]},
        },
    },
    "metrics_backend": {"type": "str", "choices": ["adapter", "keda"], "default": "adapter"},
}

METRICS: ArgSpec = {
    "metrics": {
        "type": "list",
        "elements": "dict",
        "options": {
            "name": {"type": "str"},
            "namespace": {"type": "str", "default": "default"},
            "query": {"type": "str"},
            "scrape": {
                "type": "dict",
                "options": {
                    "port": {"type": "str", "required": True},
                    "path": {"type": "str", "default": "/metrics"},
                    "interval": {"type": "int", "default": 5},
                    "labels": {"type": "dict", "default": {}},
                },
            },
        },
    },
}

PROMETHEUS: ArgSpec = {
    "prometheus": {
        "type": "dict",
        "apply_defaults": True,
        "options": {
            "namespace": {"type": "str", "default": defaults.NAMESPACE},
            "service": {"type": "str", "default": defaults.SERVICE},
            "port": {"type": "int", "default": defaults.PORT},
            "scheme": {"type": "str", "choices": ["http", "https"], "default": "http"},
            "path_prefix": {"type": "str", "default": ""},
            "url": {"type": "str"},
            "ca_cert": {"type": "path"},
            "bearer_token": {"type": "str", "no_log": True},
            "plain_http": {"type": "bool", "default": False},
            "rule_namespace": {"type": "str"},
            "rule_labels": {"type": "dict", "default": {"release": defaults.RELEASE}},
            "evaluation_interval": {"type": "int", "default": defaults.EVALUATION_INTERVAL_S},
            "selectors": {"type": "dict"},
        },
    },
}

VERIFY: ArgSpec = {
    "verify": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 300},
}

DOCTOR: ArgSpec = {
    "namespace": {"type": "str"},
    "name": {"type": "str"},
    "node_facts": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "node": {"type": "str", "required": True},
            "facts": {"type": "dict", "required": True},
        },
    },
    "servers": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "node": {"type": "str", "required": True},
            "unreachable": {"type": "str", "default": ""},
            "failed": {"type": "str", "default": ""},
            "hops": {"type": "list", "elements": "str", "default": []},
            "findings": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    **{name: {"type": "str", "required": True} for name in ("id", "hop", "seen", "cause", "fix")},
                    "severity": {"type": "str", "required": True, "choices": ["error", "warning"]},
                    "is_consequence": {"type": "bool", "default": False},
                    "explained_by": {"type": "list", "elements": "str", "default": []},
                },
            },
        },
    },
    "no_cluster": {"type": "str"},
    "history": {"type": "int", "default": 900},
    "grace": {"type": "bool", "default": True},
    "fail_on": {"type": "str", "choices": ["error", "warning", "never"], "default": "never"},
}

PLAN: ArgSpec = {
    "namespace": {"type": "str"},
    "autoscalers": {"type": "list", "elements": "dict", "default": []},
    "history": {"type": "int", "default": 86400},
    "step": {"type": "int"},
    "recent": {"type": "int", "default": 3600},
    "load": {"type": "list", "elements": "float"},
    "settings": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str"},
            "target_value": {"type": "float"},
            "min_replicas": {"type": "int"},
            "max_replicas": {"type": "int"},
            "pod_start": {"type": "int"},
            "scale_up": {"type": "dict", "options": _SCALING_RULES},
            "scale_down": {"type": "dict", "options": _SCALING_RULES},
        },
    },
    "pod_start": {"type": "int"},
    "overload": {"type": "float"},
    "overload_minutes": {"type": "float", "default": 15},
}

WATCH: ArgSpec = {
    "namespace": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "seconds": {"type": "float", "default": 60},
    "end": {"type": "float"},
    "job": {
        "type": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "line": {"type": "str", "default": ""},
            "timeout": {"type": "float", "default": 120},
            "until_end": {"type": "bool", "default": False},
        },
    },
    "pod": {"type": "str", "default": ""},
}

PROOF: ArgSpec = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "namespace": {"type": "str", "default": "kubegpu-proof"},
    "image": {"type": "str"},
    "scripts": {"type": "dict", "default": {}},
    "runtime_class": {"type": "str", "default": "nvidia"},
    "unrequested_gpus": {"type": "str", "choices": ["auto", "deny", "allow"], "default": "auto"},
    "tolerations": {"type": "list", "elements": "dict", "default": []},
    "node_selector": {"type": "dict", "default": {}},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "servers": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "node": {"type": "str", "required": True},
            "facts": {"type": "dict", "required": True},
        },
    },
    "chain": {"type": "bool", "default": True},
    "metrics_backend": {"type": "str", "choices": ["adapter", "keda"], "default": "adapter"},
    "repeat": {"type": "bool", "default": False},
    "conformance": {"type": "bool", "default": False},
    "wait_timeout": {"type": "int", "default": 300},
}
