"""What Ansible makes of a template is compiled once for each source, and is what it was without that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parents[3] / "lab" / "nodes" / "python"
# As at a start with the .pth file, in a virtual environment that has the folder.
PLAY = """
import json, os, sys
path, prefix, switch, asked = sys.argv[1:]
sys.path.insert(0, path)
sys.prefix = prefix
sys.modules.pop("template_bytecode", None)
os.environ["KUBEGPU_TEMPLATE_BYTECODE"] = switch
import template_bytecode
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible._internal._templating._jinja_bits import AnsibleEnvironment
compiled = []
really = AnsibleEnvironment._compile
AnsibleEnvironment._compile = lambda self, source, name: (compiled.append(source), really(self, source, name))[1]
given = []
for kind, text, options in json.loads(asked):
    templar = Templar(DataLoader(), {"n": 2, "words": ["a", "b"]})
    try:
        if kind == "template":
            given.append(templar.template(trust_as_template(text), **options))
        else:
            given.append(templar.evaluate_expression(trust_as_template(text)))
    except AnsibleError as error:
        given.append(type(error).__name__)
print(json.dumps([given, len(compiled)]))
"""
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("template", "{{ n + 1 }}", {}),
    ("template", "{% for word in words %}{{ word }}\n{% endfor %}", {}),
    ("template", "{{ words | map('upper') | join('-') }}", {}),
    ("template", "{{ '{{ n }}' }}", {}),
    ("template", r"{{ 'a\tb' }}", {"escape_backslashes": True}),
    ("template", r"{{ 'a\tb' }}", {"escape_backslashes": False}),
    ("expression", "n == 2", {}),
    ("expression", "n is divisibleby(3)", {}),
    ("template", "n == 2", {}),
    ("template", "{{ n", {}),
    ("expression", "n ==", {}),
    ("template", "{{ n | nobody_has_it }}", {}),
]


def play(prefix: Path, switch: str = "kept") -> tuple[list[Any], int]:
    """What templates and expressions give, and how many of them were compiled."""
    argv = [sys.executable, "-c", PLAY, HERE, prefix, switch, json.dumps(ASKED)]
    # The .pth file of this virtual environment is to do nothing.
    environment = {**os.environ, "KUBEGPU_TEMPLATE_BYTECODE": ""}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    given, compiled = json.loads(done.stdout)
    return given, compiled


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    (tmp_path / "template-bytecode").mkdir()
    return tmp_path


def test_each_is_compiled_once_and_gives_the_same(tmp_path: Path, prefix: Path) -> None:
    without = play(tmp_path / "nowhere")

    first, second = play(prefix), play(prefix)

    assert first == without
    assert second == (without[0], 0)
    assert without[0][:9] == [3, "a\nb\n", "A-B", "{{ n }}", "a\\tb", "a\tb", True, False, "n == 2"]


def test_what_was_damaged_is_compiled_again(prefix: Path) -> None:
    first = play(prefix)
    for file in (prefix / "template-bytecode").iterdir():
        file.write_bytes(file.read_bytes()[:9])

    assert play(prefix) == first


def test_who_measures_leaves_it_out(prefix: Path) -> None:
    first = play(prefix)

    assert first[1] > 0
    assert play(prefix, switch="") == first
