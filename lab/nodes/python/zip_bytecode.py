"""Caches the bytecode of imports from a zip, as Python itself does for files.

Ansible sends each module with its imports as a zip. Compiling that is two thirds of a module's processor time.
A `.pth` file imports this at each start of Python. The cache key is the source, so it cannot be outdated.
"""

from __future__ import annotations

import _imp
import contextlib
import marshal
import os
import sys
import zipimport
from types import CodeType

# Paths on a server, and in a virtual environment.
FOLDER = next((path for path in ("/var/cache/zip-bytecode", f"{sys.prefix}/zip-bytecode") if os.path.isdir(path)), "")
_KEY = 0x6B75626567707500  # any number will do
_compile = zipimport._compile_source  # type: ignore[attr-defined]


def _kept(path: str, source: bytes) -> CodeType:
    """The code of a source, with `path` as the file that a traceback names."""
    found = f"{len(source)}-{_imp.source_hash(_KEY, source).hex()}.{sys.implementation.cache_tag}"
    file = f"{FOLDER}/{os.path.basename(path)}-{found}"
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError), open(file, "rb") as kept:
        code: CodeType = marshal.load(kept)
        _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
        return code
    code = _compile(path, source)
    with contextlib.suppress(OSError):
        written = f"{file}.{os.getpid()}"
        with open(written, "wb") as kept:
            marshal.dump(code, kept)
        os.replace(written, file)
    return code


if FOLDER:
    zipimport._compile_source = _kept  # type: ignore[attr-defined]
