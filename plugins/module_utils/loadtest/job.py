# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The Job that sends the load of a test, and the Secret with its plan."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from ..formats.plain import plain
from ..kube.labels import PART_OF, labels
from ..kube.objects import Manifest, statuses
from .request_schedule import load_plan, longest_s, sweep_plan
from .shapes import from_dict

CONTAINER = "load"
# Seconds that a generator may take beyond its stages and its start. After them the Job ends, whether its controller
# still lives or not, and leaves nothing.
_SPARE_S = 60
_KEPT_S = 600
_USER = 12345
# Of Locust's own figures one table at the end, without its server of web pages. The one user starts all others.
_LOCUST = ("--headless", "--only-summary", "--users=1")


@dataclass(frozen=True)
class Generator:
    """What sends the load.

    name:     of the Job, and of the Secret with `files`, texts by file name.
    seconds:  that the stages take. start_timeout: seconds for the image to be pulled and the container to start.
    owners:   of the Secret: the Job, once its uid is known.
    command:  of an image that is not Locust's; else its arguments are known.
    """

    name: str
    namespace: str
    inventory: str
    image: str
    files: Mapping[str, str]
    seconds: int
    start_timeout: int
    owners: Sequence[Mapping[str, Any]] = ()
    command: Sequence[str] = ()
    node_selector: Mapping[str, str] | None = None
    tolerations: Sequence[Mapping[str, Any]] = ()


def manifests(generator: Generator) -> list[Manifest]:
    """The Job, and with its owner the Secret, so that a killed run leaves no Secret that outlives the Job."""
    metadata = {"name": generator.name, "namespace": generator.namespace}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata, "ownerReferences": list(generator.owners)},
        "data": {name: b64encode(text.encode()).decode() for name, text in generator.files.items()},
    }
    spec = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": generator.seconds + generator.start_timeout + _SPARE_S,
        "ttlSecondsAfterFinished": _KEPT_S,
        "template": {
            "metadata": {"labels": {**labels(generator.inventory), PART_OF: generator.name}},
            "spec": _pod(generator),
        },
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    return [secret, job] if generator.owners else [job]


def _pod(generator: Generator) -> Manifest:
    runs: dict[str, Any] = (
        {"command": list(generator.command)}
        if generator.command
        else {"args": [*_LOCUST, "--locustfile=/plan/locustfile.py"]}
    )
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": generator.node_selector or {},
        "tolerations": list(generator.tolerations),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": "plan", "secret": {"secretName": generator.name}}, {"name": "tmp", "emptyDir": {}}],
        "containers": [
            {
                "name": CONTAINER,
                "image": generator.image,
                **runs,
                "workingDir": "/tmp",
                "volumeMounts": [
                    {"name": "plan", "mountPath": "/plan", "readOnly": True},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }


def exits(pods: Sequence[Manifest]) -> list[int]:
    """Exit codes of the generator's container. The Job continues while the proxy of a service mesh runs."""
    states = [status.get("state") or {} for pod in pods for status in statuses(pod) if status["name"] == CONTAINER]
    return [state["terminated"]["exitCode"] for state in states if "terminated" in state]


def loadtest_objects(
    generator: Mapping[str, Any], stages: Sequence[Mapping[str, Any]], owners: Sequence[Mapping[str, Any]] = ()
) -> list[Manifest]:
    """The Job that sends the load, and the Secret with its plan if it has an owner.

    generator: fields of Generator; `plan` of Locust, empty for another generator; `sweep` of a search for a target.
    stages:    as gpu_loadtest_stages returns them. owners: owner references of the Secret.
    """
    given, steps = plain(generator), [from_dict(stage) for stage in stages]
    options, sweep = given.pop("plan", None), given.pop("sweep", None)
    seconds = sum(step.seconds for step in steps)
    files = dict(given["files"])
    if options:
        plan = searching(options, sweep) if sweep else load_plan(options, steps)
        files["plan.json"] = json.dumps(plan)
        seconds = ceil(longest_s(plan["sweep"])) if sweep else seconds
    numbers = {"seconds": seconds, "start_timeout": int(given["start_timeout"])}
    return manifests(Generator(**{**given, **numbers, "files": files}, owners=plain(owners)))


def searching(options: Mapping[str, Any], sweep: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a search for a target. Numbers may be text, as the command line gives them."""
    return sweep_plan(
        options,
        sweep["goals"],
        settle_s=float(sweep["settle_s"]),
        level_s=float(sweep["level_s"]),
        users=[int(number) for number in sweep["users"]],
    )
