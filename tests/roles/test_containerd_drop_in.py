"""What the drop-in of containerd compares: what is there with what is to be, and what is refused."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1
from typing import Any

import pytest
from role_values import RoleValues

CONFIG = "/etc/containerd/config.toml"
FOLDER = "/etc/containerd/conf.d"
OURS = f'version = 3\nimports = ["{FOLDER}/*.toml"]\n'


def seen(main: str, drop_in: str | None = None, **settings: Any) -> RoleValues:
    """A server with this main file, and this drop-in of ours."""
    contents = {CONFIG: main} | ({} if drop_in is None else {f"{FOLDER}/10-kubegpu.toml": drop_in})
    files = [
        {"path": path, "checksum": sha1(text.encode()).hexdigest(), "mode": "0644", "uid": 0, "gid": 0, "mtime": 1}
        for path, text in contents.items()
    ]
    told = {
        "__containerd_drop_in": {"name": "10-kubegpu.toml", "settings": {2: settings, 3: settings}},
        "__containerd_found": {"files": files},
        "__containerd_slurped": {"content": b64encode(main.encode()).decode()},
        "__containerd_default": {"stdout": "version = 4\n"},
        "__containerd_later": {},
    }
    return RoleValues("containerd", {"inventory_hostname": "gpu1"}, told)


def compared(main: str, drop_in: str | None = None, **settings: Any) -> dict[str, Any]:
    result: dict[str, Any] = seen(main, drop_in, **settings)["__containerd_compared"]
    return result


def test_a_server_that_is_as_it_should_be_is_left() -> None:
    wanted = seen(OURS, debug={"level": "info"})["__containerd_drop_in_file.content"]
    assert 'level = "info"' in wanted
    assert compared(OURS, wanted, debug={"level": "info"}) == {"refusals": [], "differs": False}


@pytest.mark.parametrize(
    ("main", "drop_in"),
    [(OURS, None), (OURS, "of an earlier release"), ('version = 3\nroot = "/data"\n', "as it should be")],
    ids=["no drop-in", "another drop-in", "a main file without imports"],
)
def test_what_is_not_there_is_written(main: str, drop_in: str | None) -> None:
    if drop_in == "as it should be":
        drop_in = seen(main)["__containerd_drop_in_file.content"]
    assert compared(main, drop_in) == {"refusals": [], "differs": True}


def test_where_something_is_refused_nothing_is_compared() -> None:
    found = compared('version = 9\nroot = "/data"\n')
    assert found == {"refusals": ["its version is 9, and drop-ins are written in 2, 3, 4."], "differs": False}
