"""How words of a sentence are counted. tools/words.py, in `make lint`, checks that none has more than 35."""

from __future__ import annotations

import ast
import subprocess

import pytest
from collection import ROOT
from sentences import long_sentences, of_page, of_python

FILES = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
WORDS = " ".join(["word"] * 18)


@pytest.mark.parametrize(
    ("text", "is_long"),
    [
        (f"{WORDS} {WORDS}.", True),
        (f"{WORDS}. {WORDS}.", False),
        (f"{WORDS}: {WORDS}.", False),
        (f"{WORDS}; {WORDS}.", True),
        (f"{WORDS} ({WORDS}).", False),
        (f"{WORDS} `{WORDS}`.", False),
        (f"{WORDS}\n{WORDS}.", True),
        (f"- {WORDS}\n- {WORDS}", False),
        (f"| {WORDS}; {WORDS} | {WORDS} |", False),
        (f"| {WORDS} {WORDS} |", True),
        (f"```\n{WORDS} {WORDS}\n```", False),
        (f"# {WORDS} {WORDS}", False),
    ],
)
def test_what_counts_on_a_page(text: str, is_long: bool) -> None:
    assert bool(long_sentences(of_page(text))) is is_long


@pytest.mark.parametrize(
    ("source", "is_long"),
    [
        (f'"""{WORDS}\n{WORDS}."""', True),
        (f'"""{WORDS}; {WORDS}."""', False),
        (f"# {WORDS}\n# {WORDS}", True),
        (f"# {WORDS}\nx = 1\n# {WORDS}", False),
        (f"DOCUMENTATION = '''\ndescription: [{WORDS} {WORDS}]\n'''", True),
        (f"DOCUMENTATION = '''\ndescription: [{WORDS} V({WORDS})]\n'''", False),
        (f"text = '{WORDS} {WORDS}'", False),
    ],
)
def test_what_counts_in_python(source: str, is_long: bool) -> None:
    assert bool(long_sentences(of_python(source))) is is_long


def variables_that_say_nothing(source: str) -> list[int]:
    """Lines where a loop variable, or an argument, is called `each`: it does not say what it holds."""
    nodes = ast.walk(ast.parse(source))
    return [
        node.lineno
        for node in nodes
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "each")
        or (isinstance(node, ast.arg) and node.arg == "each")
    ]


def test_each_loop_variable_says_what_it_holds() -> None:
    found = {path: variables_that_say_nothing((ROOT / path).read_text()) for path in FILES if path.endswith(".py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [("[each for each in x]", 1), ("lambda each: each", 1), ("for key, each in x: pass", 1), ("for pod in x: pass", 0)],
)
def test_what_counts_as_a_variable_that_says_nothing(source: str, count: int) -> None:
    assert len(variables_that_say_nothing(source)) == count
