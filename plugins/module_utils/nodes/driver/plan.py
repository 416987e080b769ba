# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plan of the role nvidia_driver, from its options and what was read on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...formats.plain import plain
from ...hops import Hop
from ..apt import dpkg
from ..apt.sources import installed_before
from ..findings import errors, findings, warnings
from ..survey.files import slurped
from ..survey.gpu_facts import GpuFacts
from ..survey.host import Host
from ..survey.program_output import Answer
from .checks import AFTER, BEFORE, EXAMINED, NOW
from .decisions import Driver, DriverOptions, DriverSurvey, Failure

# Files below the role's folder `files`, by their path on a server.
NOUVEAU = "/etc/modprobe.d/kubegpu-nouveau.conf"
NVLINK = "/etc/modules-load.d/kubegpu-nvlink.conf"
UVM = "/etc/systemd/system/kubegpu-nvidia-uvm.service"
PERSISTENCE = "/etc/systemd/system/nvidia-persistenced.service.d/kubegpu.conf"


def driver_plan(options: DriverOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, the fact gpu_facts, and results of the tasks that have run."""
    host = Host.of(survey["host"])
    driver = Driver(host, options, _survey(survey))
    return {
        "refused": errors(BEFORE, driver) if driver.is_wanted else [],
        "broken": errors(AFTER, driver),
        "notices": warnings(AFTER, driver),
        "hop": str(Hop.DRIVER),
        "findings": findings(host, (EXAMINED if driver.is_wanted else ()) + NOW, driver),
        "packages": _packages(driver),
        "files": plain(_files(driver)),
        "steps": _steps(driver),
        "reboot": {
            "allowed": driver.may_reboot,
            "required": bool(driver.reboot_reason),
            "reason": driver.reboot_reason,
        },
    }


def _packages(driver: Driver) -> dict[str, Any]:
    """apt: packages to install or remove. sources: the same as a list, empty if nothing is installed."""
    apt = driver.apt.describe()
    return {
        "apt": apt,
        "sources": [apt] if driver.is_wanted else [],
        "kernel": [*driver.kernel_packages],
        "installed": [*dpkg.names(driver.installed)],
        "foreign": {package.name: package.version for package in driver.foreign},
        "move": [*driver.move],
        "mok_certificate": driver.mok_certificate,
    }


def _files(driver: Driver) -> dict[str, Any]:
    return {
        "modules": (NOUVEAU, NVLINK) if driver.facts.needs_nvlsm else (NOUVEAU,),
        "units": (PERSISTENCE,) if driver.is_prebuilt else (),
        "boot": (UVM,),
        "all": (NOUVEAU, NVLINK, PERSISTENCE, UVM),
        "unit_folder": PERSISTENCE.rpartition("/")[0],
    }


def _steps(driver: Driver) -> dict[str, Any]:
    facts = driver.facts
    failure = driver.survey.failure
    return {
        "install": driver.is_wanted,
        "use_existing": driver.is_existing,
        "remove": driver.options.state == "absent",
        "ask_components": driver.asks_components,
        "ask_key": driver.asks_key,
        "ask_solution": driver.asks_solution,
        "ask_gpus": driver.asks_gpus,
        "move": bool(driver.foreign),
        "drain": driver.drains,
        "open_nvlink": facts.needs_nvlsm,
        "unload": _unload(facts.kernels_own),
        "reboot": driver.is_wanted and bool(driver.reboot_reason) and driver.may_reboot,
        "join_gpus": facts.needs_fabric_manager and not driver.reboot_reason,
        "describe": facts.needs_fabric_manager and not driver.reboot_reason,
        "put_back": driver.is_wanted and driver.may_reboot,
        "stay": driver.stays,
        "read_log": failure.path if failure else "",
    }


def _unload(module: str) -> list[str]:
    """Arguments of `modprobe --remove`. nova_drm is on top of nova_core."""
    return ["--remove-holders", module] if module == "nova_core" else [module] if module else []


def _survey(survey: Mapping[str, Any]) -> DriverSurvey:
    listed = Answer.of(survey.get("packages"))
    return DriverSurvey(
        facts=GpuFacts.of(survey.get("gpu_facts", {})),
        packages=dpkg.packages(listed.lines if listed else ()),
        components=_components(survey.get("components", [])),
        key_test=Answer.of(survey.get("key_test")),
        solution=Answer.of(survey.get("solution")),
        offered=Answer.of(survey.get("offered")),
        shown=Answer.of(survey.get("shown")),
        described=Answer.of(survey.get("described")),
        rebooted=survey.get("rebooted", False),
        is_ours=survey.get("pin", {}).get("exists"),
        before=installed_before(survey.get("before")),
        failure=_failure(survey) if survey.get("failure") else None,
    )


def _components(results: list[Mapping[str, Any]]) -> tuple[str, ...]:
    """Output of both queries: apt is queried again after it has read its lists."""
    answers = [Answer.of(result) for result in results]
    return tuple(line for answer in answers if answer for line in answer.lines)


def _failure(survey: Mapping[str, Any]) -> Failure:
    failed = survey["failure"]
    words = " ".join(str(failed[name]) for name in ("msg", "stderr") if failed.get(name))
    logs = sorted(survey.get("build_logs", []), key=lambda file: float(file["mtime"]))
    return Failure(words, tuple(file["path"] for file in logs), slurped(survey.get("build_log")))
