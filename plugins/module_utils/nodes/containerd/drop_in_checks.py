# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks why settings cannot be added to containerd's configuration without losing existing ones."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...hops import Hop
from ..findings import seen_on
from .drop_in import KNOWN, OLDEST_LATEST, DropIn

_RUNTIME = FindingTypes(Hop.RUNTIME)

CONFIG_UNREADABLE = _RUNTIME.error(
    "CONTAINERD_CONFIG_UNREADABLE",
    "the file is not valid TOML, so containerd does not start with it either",
    "on the node: fix the file; `containerd config dump` reads it",
    before="refuse",
)


@check("the main configuration can be read", CONFIG_UNREADABLE)
def main_file_is_readable(drop_in: DropIn) -> Iterator[CheckResult]:
    if fault := drop_in.main.fault:
        yield seen_on(drop_in.host, CONFIG_UNREADABLE, f"has {drop_in.paths.config} with an error: {fault}")


NO_ANSWER = _RUNTIME.error(
    "CONTAINERD_NO_ANSWER",
    "the installed containerd does not support the version of its configuration",
    "install containerd 2, by the role containerd for instance; then on the node: `containerd config default`",
    before="refuse",
)
TOO_OLD = _RUNTIME.error(
    "CONTAINERD_TOO_OLD",
    "in containerd 1 a drop-in replaces all settings that other files have for the same plugin "
    "(containerd/containerd#5837, #11066)",
    "install containerd 2",
    before="refuse",
)


@check("this is containerd 2 or later", NO_ANSWER, TOO_OLD)
def containerd_is_new_enough(drop_in: DropIn) -> Iterator[CheckResult]:
    answer = drop_in.survey.latest
    if answer is None:
        return
    if not drop_in.latest:
        seen = f"does not report the version of its configuration by `containerd config default`: {answer.words}"
        yield seen_on(drop_in.host, NO_ANSWER, seen)
    elif drop_in.latest < OLDEST_LATEST:
        yield seen_on(drop_in.host, TOO_OLD, "has containerd 1")


VERSION_UNKNOWN = _RUNTIME.error(
    "CONTAINERD_CONFIG_VERSION",
    "main configuration and drop-ins must have the same version, and drop-ins are written in version {version}",
    "on the node: back up {path}, and replace it with the output of `containerd config migrate`",
    before="refuse",
)


@check("the version of the main configuration is known", VERSION_UNKNOWN)
def version_is_known(drop_in: DropIn) -> Iterator[CheckResult]:
    main = drop_in.main
    if not main.fault and not main.is_unused and main.version not in KNOWN:
        known = f"{', '.join(map(str, KNOWN[:-1]))} or {KNOWN[-1]}"
        version = main.settings.get("version", 1)
        seen = f"has {drop_in.paths.config} of version {version}"
        yield seen_on(drop_in.host, VERSION_UNKNOWN, seen, version=known, path=drop_in.paths.config)


INTERFACE_DISABLED = _RUNTIME.error(
    "CONTAINERD_INTERFACE_DISABLED",
    "the kubelet starts containers by the plugin cri, and the file has other settings that may depend on its absence",
    "on the node: remove cri from disabled_plugins in {path}",
    before="refuse",
)


@check("the main configuration leaves the kubelet's interface on", INTERFACE_DISABLED)
def interface_is_left_on(drop_in: DropIn) -> Iterator[CheckResult]:
    if drop_in.main.switches_interface_off:
        path = drop_in.paths.config
        yield seen_on(drop_in.host, INTERFACE_DISABLED, f"has cri among disabled_plugins of {path}", path=path)


LATER_DROP_IN = _RUNTIME.error(
    "CONTAINERD_DROP_IN_LATER",
    "containerd would read all files as the latest version, and lose the settings of the others",
    "on the node: migrate {path} with `containerd config migrate`, or write the drop-in in version {version}",
    before="refuse",
)


@check("no drop-in has a later version", LATER_DROP_IN)
def no_drop_in_is_later(drop_in: DropIn) -> Iterator[CheckResult]:
    if later := ", ".join(drop_in.survey.later):
        version, path = str(drop_in.version), drop_in.paths.config
        seen = f"has {path} of version {version}, and {later} of a later one"
        yield seen_on(drop_in.host, LATER_DROP_IN, seen, path=path, version=version)


FOREIGN_WORDS = _RUNTIME.error(
    "CONTAINERD_SETTINGS_VERSION",
    "each version of the configuration has its own plugins, and containerd ignores those of another one",
    "write containerd_config with the plugins of version {version}, or migrate {path} with `containerd config migrate`",
    before="refuse",
)


@check("the settings match the version of the configuration", FOREIGN_WORDS)
def settings_are_of_the_version(drop_in: DropIn) -> Iterator[CheckResult]:
    if drop_in.is_wanted and drop_in.version and drop_in.foreign_words:
        version, path = str(drop_in.version), drop_in.paths.config
        names = ", ".join(drop_in.foreign_words)
        seen = f"has {path} of version {version}, and containerd_config has {names} of another version"
        yield seen_on(drop_in.host, FOREIGN_WORDS, seen, path=path, version=version)


SETTINGS_INVALID = _RUNTIME.error(
    "CONTAINERD_SETTINGS_INVALID",
    "TOML has strings, numbers, booleans, arrays and tables, but no null",
    "remove that value from containerd_config",
    before="refuse",
)


@check("the settings can be written as TOML", SETTINGS_INVALID)
def settings_are_valid(drop_in: DropIn) -> Iterator[CheckResult]:
    if drop_in.is_wanted and drop_in.fault:
        yield seen_on(drop_in.host, SETTINGS_INVALID, f"gets settings that cannot be written: {drop_in.fault}")


IMPORTS_FIXED = _RUNTIME.error(
    "CONTAINERD_IMPORTS_FIXED",
    "drop-ins are read only if the main configuration imports them, and its list of imports could not be extended",
    'on the node: write the list of imports on top of {path}, `imports = ["..."]`',
    before="refuse",
)


@check("the main configuration can import drop-ins", IMPORTS_FIXED)
def main_file_can_import(drop_in: DropIn) -> Iterator[CheckResult]:
    if drop_in.is_wanted and not drop_in.main.fault and drop_in.import_fault:
        path = drop_in.paths.config
        yield seen_on(drop_in.host, IMPORTS_FIXED, f"has {path}, whose {drop_in.import_fault}", path=path)


BEFORE = (
    main_file_is_readable,
    containerd_is_new_enough,
    version_is_known,
    interface_is_left_on,
    no_drop_in_is_later,
    settings_are_of_the_version,
    settings_are_valid,
    main_file_can_import,
)
