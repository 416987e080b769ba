# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..errors import HopError

with suppress(ImportError):  # the module has checked it before it creates a condition
    import jmespath
    from jmespath.exceptions import ArityError, JMESPathError, UnknownFunctionError


class Condition:
    """A JMESPath expression on the result of a module."""

    def __init__(self, expression: str, *, option: str, example: Mapping[str, Any]) -> None:
        """`option` names the option for errors. `example`, a typical answer, reveals expressions that can never work.

        Raises: HopError if the expression is invalid, or calls an unknown function.
        """
        self.expression = expression
        self._option = option
        try:
            self._compiled = jmespath.compile(expression)
        except JMESPathError as err:
            raise self._refusal(err) from err
        with suppress(JMESPathError):  # other values may have other types
            self._search(example)

    def holds(self, answer: Mapping[str, Any]) -> bool:
        """True unless the result is false, null or empty, which is JMESPath's own rule: 0 is true."""
        try:
            value = self._search(answer)
        except JMESPathError:
            return False
        return not (value is None or value is False or value in ("", [], {}))

    def outcome(self, answer: Mapping[str, Any]) -> str:
        """Describes the result for the answer."""
        try:
            return f"gives {json.dumps(self._search(answer))}"
        except JMESPathError as err:
            return f"cannot be evaluated: {err}"

    def _search(self, answer: Mapping[str, Any]) -> Any:
        try:
            return self._compiled.search(answer)
        except (UnknownFunctionError, ArityError) as err:
            raise self._refusal(err) from err

    def _refusal(self, err: Exception) -> HopError:
        return HopError(
            self._option,
            seen=f"{self.expression!r} is not a JMESPath expression: {err}",
            fix="https://jmespath.org describes the syntax",
        )
