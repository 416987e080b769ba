# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha1
from typing import Any

DOCUMENTATION = r"""
name: differing_files
short_description: List the files of a server that differ
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Compares wanted files with the result of one call of M(ansible.builtin.find). A run without changes then
    needs a single request, instead of one for each file.
  - A file matches if its content and mode do, and it belongs to root.
options:
  _input:
    description: The wanted files, each with C(path), C(content) and C(mode), four octal digits.
    type: list
    elements: dict
    required: true
  found:
    description: The C(files) that M(ansible.builtin.find) returned, with their checksums.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Find existing files
  ansible.builtin.find:
    paths: /etc/sysctl.d
    get_checksum: true
  register: seen

- name: Write the files that differ
  ansible.builtin.copy:
    content: "{{ item.content }}"
    dest: "{{ item.path }}"
    mode: "{{ item.mode }}"
  loop: "{{ files | kubegpu.autoscale.differing_files(seen.files) }}"
"""

RETURN = r"""
_value:
  description: The files to write.
  type: list
  elements: dict
"""

File = Mapping[str, Any]

ROOT = 0


def _differing_files(wanted: Iterable[File], found: Iterable[File]) -> list[File]:
    seen = {file["path"]: file for file in found}
    return [file for file in wanted if not _is_as_wanted(file, seen.get(file["path"], {}))]


def _is_as_wanted(wanted: File, seen: File) -> bool:
    checksum = sha1(wanted["content"].encode()).hexdigest()  # the algorithm that find uses
    told = (seen.get("checksum"), seen.get("mode"), seen.get("uid"), seen.get("gid"))
    return told == (checksum, wanted["mode"], ROOT, ROOT)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"differing_files": _differing_files}
