"""What a refused request is told: the items of `detail`, and their bytes. It knows no HTTP."""

from collections.abc import Sequence
from typing import Any

from ostraka_shared.errors import RequestError

Item = dict[str, Any]

ITEMS_MAX = 10_000
"""jev has no such limit. A body of 16 MiB can hold millions of mistakes, and their list would take gigabytes."""


class Refusal(RequestError):
    """Items in this dialect's own form. It never leaves the dialect: `refuse` turns it into a response."""

    def __init__(self, items: list[Item]) -> None:
        super().__init__(items[0]["msg"])
        self.items = items


def app_item(message: str, loc: Sequence[str | int] = ("body",), kind: str = "value_error") -> Item:
    return {"loc": list(loc), "msg": message, "type": kind}


def too_many_items() -> Refusal:
    return Refusal([app_item(f"more than {ITEMS_MAX} things are wrong with this request: they are not listed")])
