# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

with suppress(ImportError):  # part of the kubernetes library, without which nothing is read
    import yaml

    # PyYAML can be built without libyaml, which reads several times as fast.
    _Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def from_yaml(text: str) -> Any:
    """Parses YAML. Raises: ValueError with the parser's message and position."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as err:
        raise ValueError(" ".join(str(err).split())) from err


def from_yaml_of_others(text: str) -> Any:
    """Like from_yaml, for text that is written again: times stay text, as programs in Go read them.

    Raises: ValueError with the position and the parser's message, without the text, which may be a secret.
    """

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {
            first: [(tag, expression) for tag, expression in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        return yaml.load(text, Loader)
    except (
        yaml.YAMLError,
        ValueError,
    ) as err:  # ValueError: an int or a character that YAML allows and Python does not
        mark = getattr(err, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{place}{getattr(err, 'problem', None) or 'it is not text'}") from err


def manifests(text: str | bytes) -> Iterator[dict[str, Any]]:
    """The objects of a manifest, without documents that a condition left empty.

    A bare `=`, to which YAML 1.1 gives another meaning, is text: Prometheus' CRDs have one.
    """

    class Loader(_Loader):  # type: ignore[misc]
        pass

    Loader.add_constructor("tag:yaml.org,2002:value", Loader.construct_yaml_str)
    return filter(None, yaml.load_all(text, Loader=Loader))


def to_yaml(documents: Iterable[Any]) -> str:
    """The documents in a readable form: keys in their order, and multi-line text as blocks.

    Texts, numbers, lists and maps may be of Ansible's own types.
    """
    dumper = _dumper("|")
    return yaml.dump_all(documents, Dumper=dumper, explicit_start=True, sort_keys=False, width=150)


def edited(text: str, document: Any) -> str:
    """The document as YAML, where what is equal to that of the text keeps its spelling, for example 1.10.

    Comments of the text are lost. Raises: ValueError if the text is no YAML.
    """
    dumper = _dumper("|")

    def node(before: Any, value: Any) -> Any:
        if yaml.constructor.SafeConstructor().construct_document(before) == value:
            return before
        if isinstance(before, yaml.MappingNode) and isinstance(value, Mapping):
            known = {key.value: (key, old) for key, old in before.value}
            new = dumper("").represent_data
            before.value = [
                (known[name][0], node(known[name][1], value[name])) if name in known else (new(name), new(value[name]))
                for name in value
            ]
            return before
        if isinstance(before, yaml.SequenceNode) and isinstance(value, list) and len(value) == len(before.value):
            before.value = [node(*pair) for pair in zip(before.value, value, strict=True)]
            return before
        return dumper("").represent_data(value)

    try:
        tree = yaml.compose(text, _Loader)
    except yaml.YAMLError as err:
        raise ValueError(" ".join(str(err).split())) from err
    changed = node(tree, document)
    return str(yaml.serialize(changed, Dumper=dumper, explicit_start=True, width=150, allow_unicode=True))


def to_sorted_yaml(document: Any) -> str:
    """The document in the format of ansible.builtin.to_nice_yaml, so that equal values are equal texts.

    Texts, numbers, lists and maps may be of Ansible's own types.
    """
    return str(yaml.dump(document, Dumper=_dumper(None), allow_unicode=True, default_flow_style=False))


def _dumper(style_of_lines: str | None) -> type[Any]:
    """style_of_lines: style of multi-line text."""

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        is_block = "\n" in value and not any(line != line.rstrip() for line in value.splitlines())
        style = style_of_lines if is_block else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style=style)

    Dumper.add_representer(str, text)
    Dumper.add_multi_representer(str, text)
    Dumper.add_multi_representer(dict, Dumper.represent_dict)
    Dumper.add_multi_representer(list, Dumper.represent_list)
    Dumper.add_multi_representer(int, Dumper.represent_int)
    Dumper.add_multi_representer(float, Dumper.represent_float)
    return Dumper
