"""Of a key that a mapping of YAML has twice, the first is lost without a word."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator

import yaml
from collection import ROOT

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def files() -> list[str]:
    """Those that git has; templates are no YAML yet."""
    command = ["git", "ls-files", "*.yml", "*.yaml", ":!**/templates/**"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def twice(node: yaml.Node | None) -> Iterator[str]:
    """Line and key, of a node and all in it."""
    if isinstance(node, yaml.MappingNode):
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        yield from (f"{node.start_mark.line + 1}: {key}" for key, times in keys.items() if times > 1)
        for pair in node.value:
            for part in pair:
                yield from twice(part)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from twice(item)


def found(text: str) -> list[str]:
    return [line for node in yaml.compose_all(text, Loader=LOADER) for line in twice(node)]


def test_no_mapping_has_a_key_twice() -> None:
    lines = {file: found((ROOT / file).read_text()) for file in files()}

    assert len(lines) > 400
    assert {file: keys for file, keys in lines.items() if keys} == {}


def test_a_key_that_is_there_twice_is_found() -> None:
    assert found("a: 1\nb: [{c: 1, d: 2, c: 3}]\n---\n? {e: 1, e: 2}\n: !own f\n") == ["2: c", "4: e"]
