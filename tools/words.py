"""Checks that texts are written like the documentation of Kubernetes or Ansible.

    words.py [FOLDER]

prints phrases of PHRASES, tasks that begin with a verb of VERBS, sentences of more than 35 words, and subjects of
commits since BASE that are not `area: change`. It exits with 1 if it finds any. FOLDER is another checkout.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sentences import descriptions, long_sentences, of_page, of_python

ROOT = Path(__file__).parents[1]
BASE = "bd1d346f0a029a62746446f6baf742a1e6c23776"  # subjects before it were not checked
SUBJECT = re.compile(r"[a-z][a-z0-9_./-]*(, [a-z0-9_./-]+)*: \S.*")
LONGEST_SUBJECT = 72
COMMENT = re.compile(r"(?:^|\s)# (.+)")

# A pattern, and what to write instead.
PHRASES = {
    r"\bours\b": "managed by this collection",
    r"\b(some|no)body\b|\bwho(so)?ever\b|\bstrangers?\b": "existing, not managed by this collection; nothing",
    r"\bof (its|their|one's) own\b(?! (?!(and|but|in|or|with)\b)\w)": "separate, its own",
    r"\bwhich there (is|are) not\b|\bthere (is|are) none\b|\bis none of\b": "unknown, missing, none found",
    r"\b(is|are|was|were|be) (not )?there\b(?! (a|an|any|no)\b)": "exists, is missing",
    r"\b(is|are|be) told\b|\btold (by|to)\b": "is reported by, shows, reports",
    r"\bsays (that|so|who|which|whether|how)\b|\bsays? (it|so)\b": "reports, shows",
    r"\b(mends?|mended|mending|put right)\b": "fix, restore",
    r"\b(take|takes|taken|taking|took) over\b|\btake-over": "adopt",
    r"\b(leavings|rivals?)\b(?!:)": "leftover objects; conflicting component",
    r"\bbears? with\b": "tolerate",
    r"\bdecided on\b": "evaluated",
    r"\bas (it|they) comes?\b": "with its default settings",
    r"\b(is|are|was|were) to (be|have|go|come|get|do|make|run|stay|take)\b": "must, should, will",
    r"\b(goes|go|went) on\b(?! (the|a|an|to)\b)": "continues",
    r"\bgone on with\b|\b(ended|stopped) on the way\b|\brun that (was killed|ended)\b": "an interrupted run resumes",
    r"\bgone again\b": "removed again",
    r"\bonly asks\b|\bhas just (begun|come)\b": "only reads; is starting, is new",
    r"^(Told|Tried|Asked|Done|Written (whole|once|before))\b": "a sentence with a subject",
    r"^(Of|By) (the|a|an|each|all)\b[^,:]*\.$": "a sentence with a verb",
    r"\b(takes?|taking|took|takes) the place of\b": "replaces",
    r"\bwhatever\b": "any, independent of",
    r"\b(becomes?|became) of\b": "happens to",
    r"\bleft alone\b|\bleaves? (it |them )?alone\b": "does not change",
    r"\ball the same\b": "still, anyway",
    r"\b(brings?|bringing|brought)\b(?!:)": "install, add, create",
    r"\b(refuses?|is refused|are refused|was refused|were refused|refusals?)\b(?!:)": "fail, reject",
    r"(^|[.;] )(Who|Whose|Whom) [^?]*$": "a sentence whose subject is the thing or `you`",
}
PATTERNS = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in PHRASES.items()}
VERBS = re.compile(
    r"(Ask|Bring|Come|Forget|Give|Go|Have|Judge|Let|Look|Make (a|an|it|the|them)|Mend|Refuse|Say|See|Take|Tell)\b"
)


class Loader(yaml.SafeLoader):
    """Tags of Ansible, such as !unsafe, change nothing in a text."""


Loader.add_multi_constructor("!", lambda loader, _, node: loader.construct_scalar(node))


class Fault(NamedTuple):
    place: str
    text: str
    instead: str


def faults_of_text(place: str, texts: Iterator[str]) -> Iterator[Fault]:
    for text in texts:
        for pattern, instead in PATTERNS.items():
            if (match := pattern.search(_without_code(text))) and " " in text.strip():
                yield Fault(place, _around(_without_code(text), match), instead)
        for sentence in long_sentences([text]):
            yield Fault(place, sentence, "sentences of at most 35 words")


def faults_of_tasks(place: str, tasks: Any) -> Iterator[Fault]:
    for name in _names(tasks):
        if match := VERBS.match(name):
            yield Fault(place, name, f"a verb of Ansible's for {match[0]}, with its noun")


def faults_of_subject(subject: str) -> Iterator[Fault]:
    if not SUBJECT.fullmatch(subject):
        yield Fault("commit", subject, "area: change, with the area in lower case")
    if len(subject) > LONGEST_SUBJECT:
        yield Fault("commit", subject, f"at most {LONGEST_SUBJECT} characters")


def faults_of_file(root: Path, path: str) -> Iterator[Fault]:
    source = (root / path).read_text()
    if path.endswith(".md"):
        yield from faults_of_text(path, of_page(source))
    elif path.endswith(".py"):
        yield from faults_of_text(path, of_python(source))
        yield from faults_of_text(path, _messages(source))
    elif path.endswith("meta/argument_specs.yml") or path.startswith("plugins/"):
        yield from faults_of_text(path, descriptions(yaml.load(source, Loader)))
    else:
        yield from faults_of_text(path, _comments(source))
        parsed = yaml.load(source, Loader)
        yield from faults_of_text(path, iter(_names(parsed)))
        yield from faults_of_text(path, _told(parsed))
        yield from faults_of_tasks(path, parsed)


def long_sentences_of_file(root: Path, path: str) -> Iterator[Fault]:
    """Of files whose words are not checked otherwise."""
    read = {".md": of_page, ".py": of_python}.get(Path(path).suffix)
    if read and (root / path).is_file():
        for sentence in long_sentences(read((root / path).read_text())):
            yield Fault(path, sentence, "sentences of at most 35 words")


def is_read(path: str) -> bool:
    """Pages, and what the collection prints or documents. Tests and tools are not checked."""
    in_collection = path.startswith(("meta/", "plugins/", "roles/", "playbooks/"))
    return path.endswith(".md") or (in_collection and path.endswith((".py", ".yml")))


def _without_code(text: str) -> str:
    return re.sub(r"`[^`]*`|\b[A-Z]\([^)]*\)|\{\{.*?\}\}", "CODE", text, flags=re.DOTALL)


def _around(text: str, match: re.Match[str]) -> str:
    return " ".join(text[max(0, match.start() - 50) : match.end() + 30].split())


def _names(part: Any) -> Iterator[str]:
    """Of tasks, blocks and plays."""
    if isinstance(part, list):
        for row in part:
            if isinstance(row, dict):
                yield from [row["name"]] * isinstance(row.get("name"), str)
                for inside in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
                    yield from _names(row.get(inside))


def _told(part: Any) -> Iterator[str]:
    """Messages of tasks and variables: each text of several words."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key not in _NO_TEXT:
                yield from _told(value)
    elif isinstance(part, list):
        for row in part:
            yield from _told(row)
    elif isinstance(part, str) and part.count(" ") > 3 and not part.lstrip().startswith("{"):
        yield from part.split(";")


def _comments(source: str) -> Iterator[str]:
    """Of YAML, at the end of a line, too."""
    yield from (found[1] for line in source.splitlines() if (found := COMMENT.search(line)))


def _messages(source: str) -> Iterator[str]:
    """Texts of several words in code, a formatted one as a whole, but no queries. Docstrings are read elsewhere."""
    tree = ast.parse(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    skipped |= {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id in _YAML for target in node.targets)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "CODE" for part in node.values)
            yield from [] if "\n" in text else text.split(";")
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped
        if is_text and node.value.count(" ") > 1 and "\n" not in node.value:
            yield from node.value.split(";")


_YAML = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
_NO_TEXT = {"name", "expr", "that", "when", "changed_when", "failed_when", "until"}  # names are read by themselves


def subjects(root: Path) -> list[str]:
    """Of the commits since BASE, as far as this checkout has them. Merges have subjects, too."""
    log = ["git", "log", "--format=%s", f"{BASE}..HEAD"]
    done = subprocess.run(log, cwd=root, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def faults(root: Path) -> list[Fault]:
    listed = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    found = [fault for path in listed if is_read(path) for fault in faults_of_file(root, path)]
    found += [fault for path in listed if not is_read(path) for fault in long_sentences_of_file(root, path)]
    return found + [fault for subject in subjects(root) for fault in faults_of_subject(subject)]


def main(root: Path) -> int:
    found = faults(root)
    for fault in found:
        print(f"{fault.place}: {fault.text!r}: {fault.instead}")
    print(f"words: {len(found)} faults")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
