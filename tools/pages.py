"""`make pages`: the documentation as a site in build/pages/site, read in a browser or from a folder, without internet.

It contains docs, and the READMEs of roles. Modules and filters have the page of ansible-doc.
Links to other files go to the repository. A broken link fails the build, as does a missing
anchor, and a page that is not in mkdocs.yml.
"""

from __future__ import annotations

import html
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from collection import COLLECTIONS_PATH, ROOT, install

PLACE = ROOT / "build" / "pages"
REPOSITORY = "https://github.com/kubegpu/autoscale/blob/main"
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
_CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LONG_NAME = re.compile(r"(?<![\w#/(\"=.`\\-])(?=\w{20})[A-Za-z0-9]+(?:_[A-Za-z0-9]+){2,}(?![\w`)\"])")
_LONG = re.compile(r"[\w ./:@=+,'&{}\[\]-]{20,}")
# Of the documentation of modules: B(bold), O(option) and the like.
_MARKUP = re.compile(r"\b(RV|[BICVOMUELP])\(((?:[^()]|\([^()]*\))*)\)")
# Headings without a web font are thin. Tables of options are wide, so they scroll in a frame on phones, as pictures do.
STYLE = """.md-grid { max-width: 80rem }
.md-typeset h1, .md-typeset h2 { color: inherit; font-weight: 700 }
.md-typeset code { word-break: normal; overflow-wrap: break-word }
.md-typeset table:not([class]) { display: table; width: 100% }
.md-typeset table:not([class]) td, .md-typeset table:not([class]) th { min-width: 0; overflow-wrap: break-word }
.md-typeset :is(#options, #result) + * td:last-child { overflow-wrap: anywhere }
[data-md-color-scheme="slate"] .md-typeset a code { color: #8ab4f8 }
.md-nav--secondary { font-size: .6rem }
.md-nav--secondary .md-ellipsis { overflow: visible; overflow-wrap: anywhere; white-space: normal }
.md-typeset p > img:only-child { display: block }
@media screen and (max-width: 44.9375em) {
  .md-typeset table:not([class]):has(th:nth-child(3)) { min-width: 34rem }
  .md-typeset table:not([class]):has(th:nth-child(5)) { min-width: 44rem }
  .md-typeset p:has(> img.wide) { overflow-x: auto }
  .md-typeset p > img.wide { max-width: none; width: 40rem }
}
"""


class WrongLinkError(Exception):
    """The page, the link, and that there is no such file."""


def sources() -> dict[str, str]:
    """Path in the site -> Markdown, of all pages."""
    written = [
        *("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"),
        *(str(path.relative_to(ROOT)) for path in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("roles/[a-z]*/README.md")]),
    ]
    pages = {path: resolved(path, (ROOT / path).read_text(), set(written)) for path in sorted(written)}
    made = {f"{kind}s/{name}.md": text for kind, name, text in documented()}
    return {in_site(path): for_site(path, text) for path, text in (pages | made).items()}


def in_site(path: str) -> str:
    """Path of a page in the site. The README of a role is not an index, or the first would be the page of all."""
    return "index.md" if path == "README.md" else re.sub(r"^roles/(\w+)/README\.md$", r"roles/\1.md", path)


def for_site(path: str, page: str) -> str:
    """Pictures of a terminal or a plot scroll on a phone; names of options may be wrapped between their words."""
    page = re.sub(r"^(!\[[^\]]*\]\((?!docs/chain)[^)]*\.svg\))$", r"\1{ .wide }", page, flags=re.MULTILINE)
    page = _outside_of_blocks(page, lambda text: _INLINE.sub(_breakable_if_long, text))
    page = _outside_of_blocks(page, lambda text: _LONG_NAME.sub(lambda match: _between_words(match[0]), text))
    page = re.sub(r"^(#+ )(\w*_\w+)$", lambda match: match[1] + _between_words(match[2]), page, flags=re.MULTILINE)
    page = re.sub(
        r"^(#+ )(\w*[a-z][A-Z]\w*)$", lambda match: match[1] + _between_words(match[2]), page, flags=re.MULTILINE
    )
    if path == "CHANGELOG.md":
        page = page.replace("\\_", "\\_<wbr>")
    if path.startswith("roles/"):
        page = re.sub(
            r"^(# .* )([\w.]+)$", lambda match: match[1] + _between_words(match[2]), page, count=1, flags=re.MULTILINE
        )
        page = re.sub(r"^\| ?(\w*_\w+) \|", lambda match: f"| {breakable(match[1])} |", page, flags=re.MULTILINE)
    return page


def breakable(name: str) -> str:
    """A name as code that is wrapped only between its words."""
    return f"<code>{_between_words(name)}</code>"


def _breakable_if_long(code: re.Match[str]) -> str:
    return breakable(code[1]) if _LONG.fullmatch(code[1]) else code[0]


def _between_words(name: str) -> str:
    marked = re.sub(r"(?<=[._/@=])(?=.)|(?<=\w-)(?=\w)|(?<=[a-z])(?=[A-Z])", "\0", name)
    return html.escape(marked, quote=False).replace("_", "&#95;").replace("\0", "<wbr>")


def _outside_of_blocks(page: str, change: Callable[[str], str]) -> str:
    return "".join(part if number % 2 else change(part) for number, part in enumerate(_CODE.split(page)))


def resolved(page: str, text: str, pages: set[str]) -> str:
    """The page with the site's links. Raises: WrongLinkError."""

    def replace(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        path, _hash, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if not (ROOT / file).exists():
            raise WrongLinkError(f"{page}: there is no {file}, as the link {target} says")
        is_here = file in pages or (Path(file).suffix in (".svg", ".json", ".yml") and file.startswith("docs/"))
        if not is_here:
            return f"{before}{REPOSITORY}/{file}{after}"
        relative = posixpath.relpath(in_site(file), posixpath.dirname(in_site(page)) or ".")
        return before + relative + (f"#{anchor}" if anchor else "") + after

    return _outside_of_blocks(text, lambda part: _LINK.sub(replace, part))


def documented() -> Iterator[tuple[str, str, str]]:
    """Kind, name and page of each public module and filter, which are those with a version."""
    for kind in ("module", "filter"):
        folder = ROOT / "plugins" / f"{kind}s".replace("filters", "filter")
        names = [f"kubegpu.autoscale.{path.stem}" for path in folder.glob("*.py" if kind == "module" else "*.yml")]
        program = Path(sys.executable).with_name("ansible-doc")
        environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH}
        told = subprocess.check_output([program, "--json", "--type", kind, *names], env=environment)
        for name, entry in sorted(json.loads(told).items()):
            if "version_added" in entry["doc"]:
                yield kind, name.rpartition(".")[2], plugin_page(name, entry)


def plugin_page(name: str, entry: dict[str, Any]) -> str:
    doc = entry["doc"]
    parts = [f"# {name.rpartition('.')[2]}", f"**{text(doc['short_description'])}**", paragraphs(doc["description"])]
    if doc.get("requirements"):
        parts.append("Needs " + ", ".join(map(text, doc["requirements"])) + ".")
    if doc.get("options"):
        parts.append(table("Options", "option", sorted(doc["options"].items())))
    if entry.get("examples"):
        parts.append(f"## Examples\n\n```yaml\n{entry['examples'].strip()}\n```")
    if entry.get("return"):
        parts.append(table("Result", "key", list(entry["return"].items())))
    if doc.get("notes"):
        parts.append("## Notes\n\n" + "\n".join(f"- {text(note)}" for note in doc["notes"]))
    return "\n\n".join(parts) + "\n"


def table(title: str, first: str, options: list[tuple[str, dict[str, Any]]]) -> str:
    """Two columns, so that a phone shows both."""
    rows = "\n".join(row for option in options for row in rows_of(*option))
    return f"## {title}\n\n| {first} | what it is |\n| --- | --- |\n{rows}"


def rows_of(name: str, option: dict[str, Any], above: str = "") -> Iterator[str]:
    """A row for an option or a returned value, followed by its parts."""
    path = f"{above}{name}"
    kind = option.get("type", "str") + (f" of {option['elements']}" if option.get("elements") else "")
    default = "required" if option.get("required") else option.get("default", "")
    told = text(" ".join(_list(option.get("description", ""))))
    if option.get("choices"):
        told += " One of " + ", ".join(f"`{choice}`" for choice in option["choices"]) + "."
    shown = f"default {breakable(json.dumps(default))}" if default not in ("", None, "required") else default or ""
    yield f"| {breakable(path)}<br>{', '.join(filter(None, (kind, shown)))} | {told} |".replace("\n", " ")
    for inner in ("suboptions", "contains"):
        for key, value in (option.get(inner) or {}).items():
            yield from rows_of(key, value, f"{path}.")


def paragraphs(description: str | list[str]) -> str:
    return "\n\n".join(map(text, _list(description)))


def text(marked: str) -> str:
    """Ansible's markup as Markdown for a cell, with bars escaped."""

    def replace(match: re.Match[str]) -> str:
        letter, inner = match.groups()
        first = inner.split(",")[0]
        written = {
            "B": f"**{inner}**",
            "I": f"*{inner}*",
            "U": f"<{inner}>",
            "L": f"[{first}]({inner.rpartition(',')[2].strip()})",
        }
        return written.get(letter, f"`{inner.partition('#')[0]}`")

    return _MARKUP.sub(replace, marked).replace("|", "\\|")


def _list(description: str | list[str]) -> list[str]:
    return description if isinstance(description, list) else [description]


def configuration(pages: dict[str, str]) -> str:
    """mkdocs.yml with a page for each file in its folders."""

    def filled(entry: Any) -> Any:
        if isinstance(entry, list):
            return [filled(part) for part in entry]
        if isinstance(entry, dict):
            return {key: filled(value) for key, value in entry.items()}
        if not entry.endswith("/"):
            return entry
        return [{_title(pages[path]): path} for path in sorted(pages, key=_index_first) if path.startswith(entry)]

    lines = (ROOT / "mkdocs.yml").read_text()
    head, _nav, nav = lines.partition("\nnav:\n")
    whole = {"nav": filled(yaml.safe_load(f"nav:\n{nav}")["nav"]), "docs_dir": "docs", "site_dir": "site"}
    return f"{head}\n{yaml.safe_dump(whole, sort_keys=False)}"


def _index_first(path: str) -> tuple[str, bool, str]:
    folder, _slash, name = path.rpartition("/")
    return folder, name != "README.md", name


def _title(page: str) -> str:
    title = html.unescape(re.findall(r"^# (.+)$", page, re.MULTILINE)[0].replace("<wbr>", ""))
    return re.sub(r"^Ansible Role: kubegpu\.autoscale\.", "", title).replace("`", "")


def write(pages: dict[str, str]) -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    for path, page in pages.items():
        file = PLACE / "docs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page)
    for path in (path for path in (ROOT / "docs").rglob("*") if path.suffix in (".svg", ".json", ".yml")):
        file = PLACE / "docs" / path.relative_to(ROOT)
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, file)
    (PLACE / "docs" / "pages.css").write_text(STYLE)
    (PLACE / "mkdocs.yml").write_text(configuration(pages))


def main() -> int:
    install()
    try:
        write(sources())
    except WrongLinkError as error:
        sys.exit(f"pages -> {error}")
    program = Path(sys.executable).with_name("mkdocs")
    # Without --quiet, with which --strict ignores warnings.
    command = [program, "build", "--strict", "--config-file", PLACE / "mkdocs.yml"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith(("WARNING", "ERROR", "Aborted"))))
    if done.returncode == 0:
        print(f"pages: {PLACE / 'site' / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
