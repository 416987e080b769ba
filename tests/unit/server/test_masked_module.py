"""How a module runs the programs of a server."""

from __future__ import annotations

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.masked_module import MaskedModule


def test_a_command_runs_unexpanded_and_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """dpkg-query, for example, has formats like ${Package}."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with patch_module_args({}):
        module = MaskedModule(argument_spec={})

    assert module.run("sh", "-c", "echo $LC_ALL; cat >&2; exit 3", data="input") == (3, "C.UTF-8\n", "input\n")
    with pytest.raises(FileNotFoundError):
        module.run("/nowhere/program")
