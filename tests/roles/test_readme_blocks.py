"""README's blocks for bare servers and for one role, pasted into a shell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from readme import FROM_GIT, Home, blocks

[SITE] = blocks("You have bare servers", "sh")
[ROLE] = blocks("You need one role", "yaml")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_the_block_for_bare_servers_reaches_the_first_play(home: Home) -> None:
    """Its user has not entered an address."""
    done = home.paste(SITE, EDITOR="true")

    refused = re.findall(r"\((\w+)\): inventory -> server: \S+ is an address of the example inventory", done.stdout)
    assert sorted(refused) == ["cp1", "gpu1", "gpu2"]
    assert done.returncode == 2
    assert (home.folder / "my-servers" / ".kubegpu.log").is_file()


def test_the_block_for_one_role_runs_in_check_mode(home: Home) -> None:
    """After the block for bare servers but for its last line. This machine is all three servers."""
    *lines, site = SITE.splitlines()
    assert site == "ansible-playbook kubegpu.autoscale.site"
    home.program("enter", "#!/bin/sh\nsed -i -E 's/ansible_host: [0-9.]+/ansible_connection: local/' \"$1\"\n")
    assert home.paste("\n".join(lines), EDITOR="enter").returncode == 0
    name, command = re.findall(r"^# (\S+), .*: (ansible-playbook .*)$", ROLE, re.MULTILINE)[0]
    (home.folder / name).write_text(ROLE)

    done = home.paste(f". ~/kubegpu/bin/activate\n{command} --check")

    assert done.returncode == 0
    assert re.search(r"^gpu2 +: ok=[1-9]\d* +changed=0 +unreachable=0 +failed=0", done.stdout, re.MULTILINE)
    assert "[kubegpu.autoscale.nvidia_driver : Plan the driver]" in done.stdout


def test_each_block_installs_the_collection_by_the_line_that_these_tests_replace() -> None:
    assert SITE.count(FROM_GIT) == 1
    *_, cluster = blocks("You have a cluster", "sh")
    assert cluster.count(FROM_GIT) == 1
