# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable

from ..cluster.errors import ApiError
from ..cluster.kube import KubeClient
from ..cluster.no_answer import lasting_failure, refused_connection
from ..components.detection import find_components
from ..errors import HopError
from ..hops import Hop
from ..reading.component_reader import ComponentReader
from .outcome import Outcome
from .wait import Deadline, wait_until

# Seconds for which a closed port can be an API server that restarts; it is asked once a second.
_RESTART_S = 10


def survey_cluster(connect: Callable[[], KubeClient], server: str, inventory: str, deadline: Deadline) -> Outcome:
    """Detects the components of a cluster, as soon as it answers.

    connect: returns a client. server: address for messages. inventory: owner of the managed objects.
    Raises: HopError if the cluster does not answer in time, or treats the client as anonymous. ApiError if a part
    cannot be read for a reason other than permissions.
    """

    refused: list[HopError] = []

    def ask() -> KubeClient | ApiError:
        try:
            kube = connect()
            kube.user()
        except ApiError as err:
            if failure := lasting_failure(err, server):
                raise failure from err
            if failure := refused_connection(err, server):
                refused.append(failure)
                if len(refused) > _RESTART_S:
                    raise failure from err
            if err.status == 0 or err.status >= 500:
                return err
            raise
        return kube

    kube = wait_until(ask, lambda answer: isinstance(answer, KubeClient), deadline, poll_s=1)
    if isinstance(kube, ApiError):
        if failure := refused_connection(kube, server):
            raise failure
        fix = "kubectl get --raw /readyz, with the same kubeconfig"
        raise HopError(Hop.API_SERVER, seen=f"{server} did not answer in time: {kube}", fix=fix)
    reader = ComponentReader(kube, inventory)
    return Outcome(
        result={
            "components": find_components(reader.objects()),
            "sees_releases": reader.sees_releases,
            "serves_monitors": reader.serves_monitors,
            "runtime_classes": reader.class_names,
            "not_looked_at": reader.unread,
        }
    )
