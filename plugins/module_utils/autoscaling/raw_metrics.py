# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Validates entries of extra_metrics in the format of an autoscaling/v2 HPA, as the API server does.

Source: kubernetes pkg/apis/autoscaling/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..kube.quantity import exact_quantity
from .kube_names import (
    API_VERSION,
    CONTAINER_RESOURCE,
    DNS_LABEL,
    KIND,
    PATH_SEGMENT,
    QUALIFIED_NAME,
    is_label_value,
    is_qualified_name,
)
from .options import LARGEST_QUANTITY, Options, shown

_TARGET = ("type", "value", "averageValue", "averageUtilization")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def check_raw_metric(given: Mapping[str, Any], path: str, subject: str) -> None:
    """Raises: HopError with the path of the field that the API server would reject."""
    sections = {type_: type_[0].lower() + type_[1:] for type_ in _CHECKS}
    entry = Options(given, {"type", *sections.values()}, path, subject)
    type_ = entry.choice("type", list(sections))
    if not type_:
        raise entry.error(
            "type", "is missing", "write the entry as in an autoscaling/v2 HPA, or as metric and target_value"
        )
    if others := [section for section in entry if section not in ("type", sections[type_])]:
        raise entry.error(others[0], f"is set, but type is {type_}", f"remove it, and set {sections[type_]}")
    _CHECKS[type_](entry, sections[type_])


def _section(entry: Options, section: str, *known: str) -> Options:
    options = entry.options(section, known)
    if options is None:
        raise entry.error(section, "is missing", f"set {', '.join(known)}")
    return options


def _required(options: Options, option: str, rule: Any) -> None:
    if not options.text(option, rule=rule):
        raise options.error(option, "is missing", f"set it to {rule[1]}")


def _resource(entry: Options, section: str) -> None:
    resource = _section(entry, section, "name", "target")
    _required(resource, "name", QUALIFIED_NAME)
    _one_of(_target(resource), "averageUtilization", "averageValue")


def _container_resource(entry: Options, section: str) -> None:
    resource = _section(entry, section, "name", "container", "target")
    _required(resource, "name", CONTAINER_RESOURCE)
    _required(resource, "container", DNS_LABEL)
    _one_of(_target(resource), "averageUtilization", "averageValue")


def _pods(entry: Options, section: str) -> None:
    pods = _section(entry, section, "metric", "target")
    _identifier(pods)
    _one_of(_target(pods), "averageValue")


def _object(entry: Options, section: str) -> None:
    described = _section(entry, section, "metric", "target", "describedObject")
    reference = _section(described, "describedObject", "apiVersion", "kind", "name")
    _required(reference, "kind", KIND)
    _required(reference, "name", PATH_SEGMENT)
    reference.text("apiVersion", rule=API_VERSION)
    _identifier(described)
    target = _target(described)
    if "value" not in target and "averageValue" not in target:
        raise target.error("value", "is missing", "set value or averageValue")


def _external(entry: Options, section: str) -> None:
    external = _section(entry, section, "metric", "target")
    _identifier(external)
    _one_of(_target(external), "value", "averageValue")


_CHECKS: dict[str, Callable[[Options, str], None]] = {
    "Resource": _resource,
    "ContainerResource": _container_resource,
    "Pods": _pods,
    "Object": _object,
    "External": _external,
}


def _identifier(section: Options) -> None:
    metric = _section(section, "metric", "name", "selector")
    _required(metric, "name", PATH_SEGMENT)
    selector = metric.options("selector", ("matchLabels", "matchExpressions"))
    if selector is None:
        return
    check_labels(selector, "matchLabels")
    for path, entry in selector.entries("matchExpressions"):
        expression = Options(entry, ("key", "operator", "values"), path, selector.subject)
        _required(expression, "key", QUALIFIED_NAME)
        operator = expression.choice("operator", _OPERATORS)
        values = [value for _path, value in expression.entries("values")]
        if operator is None:
            raise expression.error("operator", "is missing", f"set it to one of {', '.join(_OPERATORS)}")
        if bool(values) is not (operator in ("In", "NotIn")):
            raise expression.error(
                "values", f"are {shown(values)} with {operator}", "give values with In and NotIn alone"
            )
        for value in values:
            if not isinstance(value, str) or not is_label_value(value):
                raise expression.error("values", f"have {shown(value)}", "use valid values of a label, in quotes")


def check_labels(options: Options, option: str) -> None:
    """Raises: HopError if it is not a mapping of labels."""
    labels = options.raw(option, {})
    if not isinstance(labels, Mapping):
        raise options.error(option, f"is {shown(labels)}, not a mapping", "write label: value")
    for label, value in labels.items():
        if not isinstance(label, str) or not is_qualified_name(label):
            raise options.error(option, f"has the label {shown(label)}", "use a valid name of a label")
        if not isinstance(value, str) or not is_label_value(value):
            raise options.error(
                f"{option}.{label}", f"is {shown(value)}", "set it to a valid value of a label, in quotes"
            )


def _target(section: Options) -> Options:
    target = _section(section, "target", *_TARGET)
    if target.choice("type", ("Utilization", "Value", "AverageValue")) is None:
        raise target.error("type", "is missing", "set it to Utilization, Value or AverageValue")
    if "averageUtilization" in target:
        if not isinstance(target.raw("averageUtilization"), int):
            raise target.error(
                "averageUtilization", f"is {shown(target.raw('averageUtilization'))}", "write a whole number"
            )
        target.whole("averageUtilization", 1)
    for option in ("value", "averageValue"):
        if option in target and not _is_positive(target.raw(option)):
            raise target.error(
                option, f"is {shown(target.raw(option))}", f"set it to a quantity above 0, at most {LARGEST_QUANTITY:g}"
            )
    return target


def _is_positive(given: Any) -> bool:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return False
    try:
        return 0 < exact_quantity(str(given)) <= LARGEST_QUANTITY
    except ValueError:
        return False


def _one_of(target: Options, *options: str) -> None:
    found = [option for option in options if option in target]
    if len(found) != 1:
        seen = f"is set beside {found[0]}" if found else "is missing"
        raise target.error(found[1] if found else options[0], seen, f"set {' or '.join(options)}")
