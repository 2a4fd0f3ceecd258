"""What a supervisor tells its gateways and they tell it, as JSON in one datagram each. Both are of one installation."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ostraka_gateway.shadow import Figures

MESSAGE_BYTES = 1 << 14
"""An order has one socket's path, a report a few numbers; a longer datagram would be cut short."""


@dataclass(frozen=True, slots=True)
class Assist:
    """How much of its work a gateway shares with its successor on the private socket `to`; None: it has none."""

    to: str | None = None
    mirrored: float = 0.0
    passed_on: float = 0.0


@dataclass(frozen=True, slots=True)
class Accept:
    """Take connections from the listening socket."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Be not ready, so that no one is sent here any more, and answer whoever comes all the same."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Stop accepting, answer what is here, give the connections to the successor, and end."""


@dataclass(frozen=True, slots=True)
class CountBroken:
    """To one that takes another's place: `requests` that the other had begun and did not answer, as far as is known."""

    requests: int = 0


@dataclass(frozen=True, slots=True)
class Rebind:
    """The sockets' files are gone: bind them anew. Links that are made live on."""


@dataclass(frozen=True, slots=True)
class Degraded:
    """What is wrong, though it keeps nobody from being answered, for /health to say; nothing where all is well."""

    reasons: Sequence[str] = ()


Order = Assist | Accept | Announce | Leave | CountBroken | Rebind | Degraded
ORDERS: dict[str, type[Order]] = {
    order.__name__.lower(): order for order in (Assist, Accept, Announce, Leave, CountBroken, Rebind, Degraded)
}


@dataclass(frozen=True, slots=True)
class Report:
    """Sent whenever it changes, ten times a second at most and several times at least: that the event loop moves is
    itself something to report."""

    ready_workers: int = 0
    is_accepting: bool = False
    figures: Figures = field(default_factory=Figures)
    in_flight_requests: int = 0


def encode_order(order: Order) -> bytes:
    return json.dumps({"order": type(order).__name__.lower(), **asdict(order)}).encode()


def decode_order(message: bytes) -> Order:
    """Raises ValueError, KeyError or TypeError."""
    fields: dict[str, Any] = json.loads(message)
    return ORDERS[fields.pop("order")](**fields)


def encode_report(report: Report) -> bytes:
    return json.dumps(asdict(report)).encode()


def decode_report(message: bytes) -> Report:
    """Raises ValueError, KeyError or TypeError."""
    fields: dict[str, Any] = json.loads(message)
    return Report(**fields | {"figures": Figures(**fields["figures"])})
