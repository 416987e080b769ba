# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which nodes the GPU components run on, and which ones a role waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..chain.gpu_labels import GPU_LABELS


def label_values(labels: Mapping[str, Any]) -> dict[str, str]:
    """Labels as Kubernetes has them: YAML reads `1` and `true` as a number and a truth, and labels are text."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in labels.items()}


def gpu_nodes(pool: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes with a GPU that have all labels of `pool`.

    Returns: `labels` of the pool as text, `terms` for a label selector of the pool, `selectors` of the nodes to wait
    for, which gpu_node_labels or GPU feature discovery has labelled, and an `affinity` for pods. The affinity has one
    term for each label that says "GPU", since a node that joins has its cloud's label before it has ours.
    """
    labels = label_values(pool)
    terms = [f"{key}={value}" for key, value in labels.items()]
    of_pool = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    node_terms = [{"matchExpressions": [label.expression(), *of_pool]} for label in GPU_LABELS]
    return {
        "labels": labels,
        "terms": terms,
        "selectors": ["nvidia.com/gpu.present=true", *terms],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": node_terms}}
        },
    }
