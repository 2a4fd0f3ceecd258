"""A state, an instruction or a description: a string, an object or an array, and how deep it may be.

Written out instead of left to a union of pydantic's, whose depth limit and names differ between its versions and
between operating systems; the ones here are those of jev's golden answers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails

from ostraka_gateway.jevos.items import ITEMS_MAX, too_many_items

DEPTH_MAX = 100
"""The first level that is too deep: 98 containers around a scalar pass."""

_JSON = "json-or-python[json=any,python=tagged-union[list[...],dict[str,...],str,bool,int,float,none]]"
_DICT = f"dict[str,{_JSON}]"
_LIST = f"list[{_JSON}]"

Loc = tuple[str | int, ...]


@dataclass(slots=True)
class Allowance:
    """Of one request, as its validation context. `depth` shrinks: see `_too_deep`."""

    depth: int = DEPTH_MAX
    items_left: int = ITEMS_MAX


def _check(value: Any, check: ValidationInfo) -> Any:
    if isinstance(value, str):
        return value
    allowance = check.context
    assert isinstance(allowance, Allowance)  # noqa: S101  for mypy: `parse_request` always gives it
    found = [_item("recursion_loop", (_name(value), *path), deep) for path, deep in _too_deep(value, allowance)]
    if isinstance(value, dict | list) and not found:
        return value
    as_dict = found if isinstance(value, dict) else [_item("dict_type", (_DICT,), value)]
    as_list = found if isinstance(value, list) else [_item("list_type", (_LIST,), value)]
    items = [_item("string_type", ("str",), value), *as_dict, *as_list]
    allowance.items_left -= len(items)
    if allowance.items_left < 0:
        raise too_many_items()
    raise ValidationError.from_exception_data("structured", items)


def _too_deep(value: Any, allowance: Allowance, level: int = 1, path: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    """In reading order. Each container that is too deep lowers the limit for all that follows in the request: a leak
    in the pydantic that jev mirrors, which clients can see."""
    for step, child in _children(value):
        is_container = isinstance(child, dict | list)
        if level + 1 >= allowance.depth:
            yield (*path, step), child
            allowance.depth -= is_container
        elif is_container:
            yield from _too_deep(
                child, allowance, level + 1, (*path, step, "dict" if isinstance(child, dict) else "list")
            )


def _children(value: Any) -> Iterator[tuple[str | int, Any]]:
    match value:
        case dict():
            yield from value.items()
        case list():
            yield from enumerate(value)


def _name(value: Any) -> str:
    return _DICT if isinstance(value, dict) else _LIST


def _item(kind: str, loc: Loc, value: Any) -> InitErrorDetails:
    return InitErrorDetails(type=kind, loc=loc, input=value)


Structured = Annotated[str | dict[str, Any] | list[Any], PlainValidator(_check)]
