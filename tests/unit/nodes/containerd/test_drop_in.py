"""How settings get into containerd's configuration: what is written, what is left, and what fails before a change."""

from __future__ import annotations

import tomllib
from base64 import b64encode
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.containerd.drop_in_checks import BEFORE
from planned import CONTAINERD_PATHS as PATHS
from planned import entry, plan_of, said, unseen

CONFIG, FOLDER = PATHS["config"], PATHS["drop_ins"]
NAME = f"{FOLDER}/10-kubegpu.toml"
THEIRS = f"{FOLDER}/99-theirs.toml"
PACKAGED = '# comments\ndisabled_plugins = ["cri"]\n'
KEPT = f"{CONFIG}.before-kubegpu"
HEADER = f"# Written once by kubegpu.autoscale; settings are in the files below {FOLDER}.\n"
OURS = f'{HEADER}version = 3\nimports = ["{FOLDER}/*.toml"]\n'
EXISTING = 'version = 3\nroot = "/data"\n'
OLD = 'version = 2\nroot = "/data"\n'
DEBUG = {"debug": {"level": "info"}}


def plan(
    main: str | None, *files: dict[str, Any], survey: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """For a server with this main configuration and these other files."""
    seen = [*([entry(CONFIG, main)] if main is not None else []), *files]
    read = {"found": {"files": seen}, "main": {"content": b64encode((main or "").encode()).decode()}}
    given = {"name": "10-kubegpu.toml", "settings": {"2": DEBUG, "3": DEBUG}, **options}
    return plan_of("containerd.drop_in", {"drop_in": given, "paths": PATHS, **read, **(survey or {})})


def latest(version: int) -> dict[str, Any]:
    return {"latest": said("# comment", f"version = {version}", "root = '/var/lib/containerd'")}


def drop_in(main: str, **options: Any) -> dict[str, Any]:
    """Content of the drop-in for such a main configuration."""
    return tomllib.loads(plan(main, **options)["files"]["drop_in"]["content"])


def test_a_server_that_is_as_it_should_be_is_left() -> None:
    wanted = plan(OURS)["files"]["drop_in"]["content"]
    made = plan(OURS, entry(NAME, wanted))

    assert tomllib.loads(wanted) == {"version": 3, **DEBUG}
    assert (made["refused"], made["steps"]["write"], made["steps"]["ask_latest"]) == ([], False, False)


@pytest.mark.parametrize(
    ("main", "content"),
    [(OURS, None), (OURS, "of an earlier release"), (EXISTING, "as it should be")],
    ids=["no drop-in", "another drop-in", "a main file without imports"],
)
def test_what_is_not_there_is_written(main: str, content: str | None) -> None:
    if content == "as it should be":
        content = plan(main)["files"]["drop_in"]["content"]
    files = [] if content is None else [entry(NAME, content)]

    assert plan(main, *files)["steps"]["write"]


@pytest.mark.parametrize("change", [{"mode": "0600"}, {"uid": 1000}, {"gid": 1000}])
def test_a_drop_in_that_others_may_write_is_written_again(change: dict[str, Any]) -> None:
    wanted = plan(OURS)["files"]["drop_in"]["content"]
    assert plan(OURS, entry(NAME, wanted) | change)["steps"]["write"]


@pytest.mark.parametrize("main", [None, "", PACKAGED, "# comments\n", "version = 2\n"])
@pytest.mark.parametrize(("knows", "version"), [(3, 3), (4, 4), (9, 4)])
def test_an_unused_main_file_is_written_in_the_latest_version_that_both_know(
    main: str | None, knows: int, version: int
) -> None:
    assert plan(main)["steps"]["ask_latest"]
    made = plan(main, survey=latest(knows))
    [file] = made["files"]["main"]

    assert made["refused"] == []
    assert (file["path"], file["content"]) == (CONFIG, OURS.replace("= 3", f"= {version}"))
    assert made["steps"]["keep_packaged"] is (main is not None)
    assert tomllib.loads(made["files"]["drop_in"]["content"])["version"] == version


def test_the_packaged_file_is_kept_once() -> None:
    assert not plan(PACKAGED, entry(KEPT), survey=latest(3))["steps"]["keep_packaged"]


def test_an_existing_main_file_gets_one_import_and_keeps_its_mode() -> None:
    [file] = plan(None, entry(CONFIG, EXISTING, mode="0600"), survey={"main": _slurp(EXISTING)})["files"]["main"]

    assert file["content"].partition("\n")[2] == EXISTING
    assert tomllib.loads(file["content"]) == {"imports": [f"{FOLDER}/*.toml"], "version": 3, "root": "/data"}
    assert file["mode"] == "0600"


def _slurp(text: str) -> dict[str, str]:
    return {"content": b64encode(text.encode()).decode()}


@pytest.mark.parametrize(("main", "words"), [(OLD, "2"), (EXISTING, "3"), (EXISTING.replace("3", "4"), "3")])
def test_settings_are_in_the_words_of_the_main_file(main: str, words: str) -> None:
    made = drop_in(main, settings={"2": {"words": "2"}, "3": {"words": "3"}}, survey=latest(3))
    assert made["words"] == words


def test_settings_of_the_user_are_merged_at_any_depth() -> None:
    made = drop_in(OURS, settings={"2": {}, "3": {"a": {"b": 1, "c": [1]}}}, config={"a": {"c": [2], "d": True}})
    assert made["a"] == {"b": 1, "c": [2], "d": True}


@pytest.mark.parametrize(
    ("config", "mode"), [({"registry": {"auth": {"password": "word"}}}, "0600"), ({"root": "/data"}, "0644")]
)
def test_a_login_is_read_by_root_alone(config: dict[str, Any], mode: str) -> None:
    made = plan(OURS, config=config)
    assert made["files"]["drop_in"]["mode"] == mode
    assert made["steps"]["has_secrets"] is (mode == "0600")


@pytest.mark.parametrize(("main", "later"), [(OLD, "3|4|5|6|7|8|9"), (EXISTING, "4|5|6|7|8|9")])
def test_other_drop_ins_are_searched_for_later_versions(main: str, later: str) -> None:
    assert plan(main, entry(THEIRS))["later_versions"] == rf"version\s*=\s*({later})\b"
    assert plan(main, entry(NAME))["later_versions"] == ""
    assert plan(None, entry(THEIRS))["later_versions"] == ""  # its version is not known yet


CRI = {"plugins": {"io.containerd.cri.v1.images": {}}}
# Main configuration, what else is read or set, and what the error says.
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no TOML": ("version = \n", {}, f"has {CONFIG} with an error: Invalid value"),
    "no version": ("root = '/opt/images'\n", {}, f"has {CONFIG} of version 1. Cause"),
    "a later version": ('version = 9\nroot = "/x"\n', {}, "drop-ins are written in version 2, 3 or 4"),
    "no number": ("version = 'x'\n[plugins]\n", {}, f"has {CONFIG} of version x"),
    "the interface is off": (
        "version = 3\ndisabled_plugins = ['cri', 'x']\n",
        {},
        f"has cri among disabled_plugins of {CONFIG}",
    ),
    "imports that are no list": (
        "version = 3\nimports = '/opt/a.toml'\n",
        {},
        f"has {CONFIG}, whose imports = '/opt/a.toml' cannot be extended",
    ),
    "words of version 3": (
        OLD,
        {"config": CRI, "survey": latest(3)},
        "containerd_config has io.containerd.cri.v1.images of",
    ),
    "words of version 2": (
        EXISTING,
        {"config": {"plugins": {"io.containerd.grpc.v1.cri": {}}}},
        "with the plugins of version 3",
    ),
    "a later drop-in": (
        OLD,
        {"survey": latest(3) | {"later": {"files": [entry(THEIRS)]}}},
        f"has {CONFIG} of version 2, and {THEIRS} of a later one",
    ),
    "containerd 1": (OLD, {"survey": latest(2)}, "gpu1 has containerd 1. Cause"),
    "containerd 1, bare": ("", {"survey": latest(2)}, "gpu1 has containerd 1. Cause"),
    "no containerd": ("", {"survey": {"latest": {"rc": 2, "msg": "No such file"}}}, "default`: No such file"),
    "null": (OURS, {"config": {"root": None}}, "gets settings that cannot be written: TOML has no value for None"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_lose_settings_fails_before_a_change(name: str) -> None:
    main, options, words = REFUSED[name]
    made = plan(main, **options)

    assert len(made["refused"]) == 1
    assert words in made["refused"][0]
    assert "Nothing was changed. Next: " in made["refused"][0]
    assert not made["steps"]["write"]
    assert not made["steps"]["restart"]


def test_each_finding_happens() -> None:
    assert (
        unseen(
            BEFORE, [made for main, options, _words in REFUSED.values() for made in plan(main, **options)["refused"]]
        )
        == []
    )


SOCKET, NETWORK = PATHS["socket"], PATHS["pod_network"]


@pytest.mark.parametrize(
    ("changed", "restarts"),
    [
        (entry(CONFIG, OURS, mtime=30), True),
        (entry(THEIRS, mtime=30), True),
        (entry(NETWORK, mtime=30), True),
        (entry(PATHS["proxy"], mtime=30), False),
        (entry(KEPT, mtime=30), False),
        (entry(THEIRS, mtime=10), False),
    ],
)
def test_containerd_restarts_if_it_has_not_read_its_configuration(changed: dict[str, Any], restarts: bool) -> None:
    """A run was interrupted. A restart costs pods nothing, but is not for nothing."""
    socket = entry(SOCKET, mtime=20) | {"checksum": None}
    files = [entry(NAME, plan(OURS)["files"]["drop_in"]["content"]), changed, socket]

    assert plan(OURS, *files)["steps"]["restart"] is restarts
    assert not plan(OURS, *files[:-1])["steps"]["restart"]  # containerd does not run


def gone(main: str | None, *files: dict[str, Any]) -> dict[str, Any]:
    return plan(main, *files, state="absent", settings={})


@pytest.mark.parametrize(
    ("main", "files", "removed", "comes_back"),
    [
        (OURS, [], [NAME, KEPT, CONFIG], False),
        (OURS, [entry(KEPT)], [NAME, KEPT], True),
        (OURS, [entry(KEPT), entry(THEIRS)], [NAME], False),
        (EXISTING, [], [NAME, KEPT], False),
        ("version = ", [], [NAME, KEPT], False),
        (None, [], [NAME, KEPT], False),
    ],
    ids=["ours alone", "with the packaged one", "with another drop-in", "existing", "unreadable", "none"],
)
def test_with_the_last_drop_in_the_main_file_is_as_before(
    main: str | None, files: list[dict[str, Any]], removed: list[str], comes_back: bool
) -> None:
    made = gone(main, entry(NAME), *files)

    assert made["refused"] == []
    assert made["files"]["removed"] == removed
    assert made["steps"]["bring_packaged_back"] is comes_back
    assert made["files"]["main"] == []


@pytest.mark.parametrize("others", [False, True])
def test_the_import_of_an_existing_main_file_goes_with_the_last_drop_in(others: bool) -> None:
    [imported] = plan(EXISTING)["files"]["main"]
    made = gone(imported["content"], entry(NAME), *([entry(THEIRS)] if others else []))

    assert [file["content"] for file in made["files"]["main"]] == ([] if others else [EXISTING])
