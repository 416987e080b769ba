# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Settings that depend on the size of the fleet: small ones react faster, and large ones as fast as medium ones.

docs/scaling.md has the measurements behind each number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..autoscaling.defaults import EVALUATION_INTERVAL_S

# An HPA worker has a tenth of a second for one decision.
_DECISIONS_A_WORKER = 10
# A decision sends one request to the adapter. The limit is twice that rate, in steps of a hundred.
_DECISIONS_A_STEP = 50
# With 300 nodes and all their pods a rule evaluation takes up to a fifth of a second.
_NODES_A_SECOND = 300
# A small fleet with the shorter periods needs about as much as one with twice as many nodes and 2.5 times as many
# autoscalers with the longer ones.
_SMALL_NODES = 20
_SMALL_AUTOSCALERS = 20
# kube-state-metrics reports some 50 series per pod, so 10 nodes with 30 pods each have 15,000 series per scrape.
_NODES_A_SECOND_OF_STATES = 10
_UNKNOWN_NODES = 50
_FASTEST_STATES_S, _SLOWEST_STATES_S = 2, 30  # 30 s is the default of kube-prometheus-stack
# Until the pods of a DaemonSet are ready: on a few nodes 300 s, most of it for images; at 1 Gbit/s the 0.5 GB of each
# further node (dcgm-exporter's image) take 4 s of the registry or of the way to it.
_ROLLOUT_S = 300
_ROLLOUT_S_A_NODE = 4


@dataclass(frozen=True)
class FleetSettings:
    """Settings for a size of the fleet.

    workers:    of the HPA controller, --concurrent-horizontal-pod-autoscaler-syncs.
    requests:   allowed requests per second of a client of the metrics path.
    interval:   seconds between two scrapes, and between two rule evaluations.
    states:     seconds between two scrapes of kube-state-metrics if an autoscaler uses KEDA.
    sync:       seconds between two evaluations of one HPA, on a control plane installed by this collection.
    relist:     seconds until the adapter lists new metrics.
    memory_mib: memory request of Prometheus; millicores likewise.
    rollout:    seconds to wait for one pod on each node.
    """

    workers: int
    requests: int
    interval: int
    states: int
    sync: int
    relist: int
    memory_mib: int
    millicores: int
    rollout: int


def fleet_settings(nodes: int, autoscalers: int, hpa_sync_period_s: float | None = None) -> FleetSettings:
    """Settings for this many nodes and autoscalers, by the HPA sync period in seconds.

    Without nodes the size is unknown, as in a cluster not created from the inventory, and not small.
    """
    is_small = 0 < nodes <= _SMALL_NODES and autoscalers <= _SMALL_AUTOSCALERS
    sync = 2 if is_small else 5
    decisions_a_second = autoscalers / (sync if hpa_sync_period_s is None else hpa_sync_period_s)
    states = math.ceil((nodes or _UNKNOWN_NODES) / _NODES_A_SECOND_OF_STATES)
    return FleetSettings(
        workers=max(5, math.ceil(decisions_a_second / _DECISIONS_A_WORKER)),
        requests=max(200, math.ceil(decisions_a_second / _DECISIONS_A_STEP) * 100),
        interval=1 if is_small else max(EVALUATION_INTERVAL_S, math.ceil(nodes / _NODES_A_SECOND)),
        states=min(max(_FASTEST_STATES_S, states), _SLOWEST_STATES_S),
        sync=sync,
        relist=10 if is_small else 30,
        memory_mib=max(512, nodes * 5),
        millicores=max(200, math.ceil(nodes * 2.5)),
        rollout=_ROLLOUT_S + _ROLLOUT_S_A_NODE * nodes,
    )
