"""Caches the bytecode of Ansible's templates on the controller: each task compiles its variables again.

That takes more than half of the processor time of a task with templates. A `.pth` file imports this at each start of
Python, and waits for Ansible. The cache key is the source and everything that its bytecode depends on.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # otherwise each start of Python would import these
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any

FOLDER = f"{sys.prefix}/template-bytecode"
TEMPLATES = "ansible._internal._templating._jinja_bits"
SYNTAX = (
    *("block_start_string", "block_end_string", "variable_start_string", "variable_end_string"),
    *("comment_start_string", "comment_end_string", "line_statement_prefix", "line_comment_prefix"),
    *("trim_blocks", "lstrip_blocks", "newline_sequence", "keep_trailing_newline", "autoescape", "optimized"),
)
# Cache of this process and of its parents.
_codes: dict[str, CodeType] = {}


def _read(key: str) -> CodeType | None:
    if key not in _codes:
        try:
            with open(f"{FOLDER}/{key}", "rb") as kept:
                _codes[key] = marshal.load(kept)
        except (OSError, ValueError, EOFError, TypeError):
            return None
    return _codes[key]


def _write(key: str, code: CodeType) -> None:
    _codes[key] = code
    from contextlib import suppress

    written = f"{FOLDER}/{key}.{os.getpid()}"
    with suppress(OSError):
        with open(written, "wb") as kept:
            marshal.dump(code, kept)
        os.replace(written, f"{FOLDER}/{key}")


def _keep(bits: ModuleType) -> None:
    """Use the cache whenever Ansible compiles a template or an expression."""
    import hashlib

    import jinja2
    from ansible.release import __version__
    from jinja2.environment import TemplateExpression

    environment, config = bits.AnsibleEnvironment, bits._TemplateConfig
    compile_template, compile_expression = environment.compile, environment.compile_expression
    versions = (sys.implementation.cache_tag, jinja2.__version__, __version__)

    def key(env: Any, kind: str, source: str, *more: Any) -> str:
        context = bits._TemplateCompileContext.current(optional=True)
        depends = (
            *(kind, more, versions, [getattr(env, name) for name in SYNTAX], sorted(env.extensions)),
            *(bool(context and context.escape_backslashes), config.allow_embedded_templates),
        )
        return hashlib.sha256(repr(depends).encode() + b"\0" + source.encode("utf-8", "surrogatepass")).hexdigest()

    def compile(env: Any, source: Any, name: Any = None, filename: Any = None, raw: Any = False, *more: Any) -> Any:
        of_expression = env.__dict__.pop("_expression_key", None)
        if raw or more or env._debuggable_template_source or not (of_expression or isinstance(source, str)):
            return compile_template(env, source, name, filename, raw, *more)
        found = of_expression or key(env, "template", source, name and str(name), filename and str(filename))
        code = _read(found)
        if code is None:
            code = compile_template(env, source, name, filename)
            _write(found, code)
        return code

    def expression(env: Any, source: str, undefined_to_none: bool = True) -> Any:
        found = key(env, "expression", source)
        code = None if env._debuggable_template_source else _read(found)
        if code is not None:
            template = env.template_class.from_code(env, code, env.make_globals(None), None)
            return TemplateExpression(template, undefined_to_none)
        env._expression_key = found
        try:
            return compile_expression(env, source, undefined_to_none)
        finally:
            env.__dict__.pop("_expression_key", None)

    environment.compile, environment.compile_expression = compile, expression


class _Finder:
    """Waits for the module of Ansible's templates."""

    def find_spec(self, name: str, *_where: Any) -> ModuleSpec | None:
        if name != TEMPLATES:
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _keep(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.path.isdir(FOLDER) and os.environ.get("KUBEGPU_TEMPLATE_BYTECODE", "kept"):  # empty: no cache, as for users
    sys.meta_path.insert(0, _Finder())
