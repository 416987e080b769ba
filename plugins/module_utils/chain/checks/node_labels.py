# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...errors import counted
from ...hops import Hop
from ..daemon_sets import missing_on, nodes_without_exporter
from ..state.cluster import State

_NODE_LABELS = FindingTypes(Hop.NODE_LABELS)

NODE_LABEL_MISSING = _NODE_LABELS.error(
    "NODE_LABEL_MISSING",
    cause="{component} selects nodes by labels that this node lacks. For nodes that an autoscaler adds, set them in "
    "the template of the node group",
    fix="run the gpu_node_labels role, or label the node: {labels}",
    grace_s=300,
)


@check(
    "nodes have the labels that the exporter selects",
    NODE_LABEL_MISSING,
    needs=("nodes", "daemon_sets", "component_pods"),
)
def exporter_labels(state: State) -> Iterator[CheckResult]:
    for name, node, labels, why in nodes_without_exporter(state):
        if labels:
            yield CheckResult(
                NODE_LABEL_MISSING,
                f"node {name}",
                missing_on(state.agents.exporters, why),
                state.affected_by_nodes([name]),
                state.clock.age_s(node),
                template_vars={"component": "dcgm-exporter", "labels": labels},
            )


def summary(state: State) -> str:
    return f"the labels that the exporter selects are on {counted(len(state.gpu_nodes), 'GPU node')}"


def nothing(state: State) -> str:
    return "" if state.gpu_nodes and state.agents.exporters else "no dcgm-exporter is known"
