"""Message <-> MessagePack bytes, and the only module that knows them.

A frame is one map: {"v": protocol version, "kind": name, ...the record's fields}. The schema is closed: a missing,
unknown or wrongly typed field, an extension type, a size beyond its bound or a trailing byte is a WireError, and
nothing of the frame is used.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast, get_type_hints

import msgpack

from ostraka_shared.errors import WireError
from ostraka_shared.messages import (
    PROTOCOL_VERSION,
    TOKEN_BYTES,
    Beat,
    Bye,
    Cancel,
    Drain,
    Failed,
    Hello,
    Message,
    Ready,
    Refused,
    Result,
    Started,
    Welcome,
    Work,
)

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""A request of 26,624 prompts (1,024 choices of 26 options) with 100-token suffixes is 11 MB."""
MAX_TEXT_BYTES = 4096
MAX_ITEMS = 300_000
"""More than 1,024 questions of 255 options."""

_KINDS: dict[str, type[Message]] = {
    record.__name__.upper(): record
    for record in (Hello, Welcome, Refused, Ready, Work, Started, Result, Failed, Cancel, Beat, Drain, Bye)
}
_NAMES = {record: name for name, record in _KINDS.items()}


def encode(message: Message, version: int = PROTOCOL_VERSION) -> bytes:
    """Raises WireError where the other side would refuse the frame: dropped there, it would be missed by nobody.

    `version`: another only for REFUSED, which has the same form in all of them.
    """
    record = type(message)
    kind = _NAMES[record]
    values = {name: getattr(message, name) for name in _CHECKS[record]}
    _check_fields(record, kind, values)
    try:
        encoded = cast("bytes", msgpack.packb({"v": version, "kind": kind, **values}))
    except UnicodeEncodeError as bad:
        raise WireError("wrong_field", f"a {kind} has a text that is not UTF-8") from bad
    if len(encoded) > MAX_FRAME_BYTES:
        raise WireError("oversize", f"a {kind} of {len(encoded)} bytes is over {MAX_FRAME_BYTES}")
    return encoded


def decode(frame: bytes) -> Message:
    """Raises WireError, whose `reason` is fit for a metric label."""
    if len(frame) > MAX_FRAME_BYTES:
        raise WireError("oversize", f"a frame of {len(frame)} bytes is over {MAX_FRAME_BYTES}")
    raw = _unpack(frame)
    version, kind = raw.pop("v", None), raw.pop("kind", None)
    if type(version) is not int or version != PROTOCOL_VERSION:
        known = version if _is_count(version) else None
        told = f"the peer speaks protocol {_show(version)}, this side {PROTOCOL_VERSION}"
        raise WireError("wrong_version", told, known)
    record = _KINDS.get(kind) if isinstance(kind, str) else None
    if record is None:
        raise WireError("unknown_kind", f"no message is of kind {_show(kind)}")
    checks = _CHECKS[record]
    if raw.keys() != checks.keys():
        raise WireError("wrong_field", f"a {kind} has the fields {sorted(checks)}, not {sorted(raw)!r:.200}")
    _check_fields(record, cast("str", kind), raw)
    build = cast("Callable[..., Message]", record)
    return build(**{name: tuple(value) if type(value) is list else value for name, value in raw.items()})


def decode_single(frames: Sequence[bytes]) -> Message:
    """Of a multipart message, which is one frame or none of ours. Raises WireError."""
    if len(frames) != 1:
        raise WireError("garbage", f"a message of {len(frames)} frames")
    return decode(frames[0])


def _unpack(frame: bytes) -> dict[str, Any]:
    try:
        raw = msgpack.unpackb(
            frame,
            strict_map_key=True,
            max_ext_len=0,
            max_map_len=32,
            max_array_len=MAX_ITEMS,
            max_str_len=MAX_TEXT_BYTES,
            max_bin_len=MAX_FRAME_BYTES,
        )
    except Exception as bad:  # msgpack raises five unrelated types; all mean the same here
        raise WireError("garbage", f"not a MessagePack map ({type(bad).__name__})") from bad
    if type(raw) is not dict or not all(type(key) is str for key in raw):
        raise WireError("garbage", "not a MessagePack map with text keys")
    return raw


def _check_fields(record: type[Message], kind: str, values: dict[str, Any]) -> None:
    for name, check in _CHECKS[record].items():
        if not check(values[name]):
            raise WireError("wrong_field", f"{name} of a {kind} is out of its type or bounds")


def _show(value: Any) -> str:
    """A peer's value, for a message. Only plain ones: the repr of a list nested a thousand deep is a RecursionError."""
    return f"{value!r:.40}" if isinstance(value, (int, str)) else type(value).__name__


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_duration_or_p(value: Any) -> bool:
    return type(value) is float and 0.0 <= value < 1e12  # NaN fails the comparison


def _is_text(value: Any) -> bool:
    return type(value) is str and len(value.encode(errors="surrogatepass")) <= MAX_TEXT_BYTES


def _is_tokens(value: Any) -> bool:
    return type(value) is bytes and len(value) % TOKEN_BYTES == 0


def _each(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Of a list as it arrives, or of a tuple as it leaves."""
    return lambda value: type(value) in (list, tuple) and len(value) <= MAX_ITEMS and all(map(check, value))


_TYPE_CHECKS: dict[Any, Callable[[Any], bool]] = {
    int: _is_count,
    float: _is_duration_or_p,
    str: _is_text,
    bytes: _is_tokens,
    tuple[int, ...]: _each(_is_count),
    tuple[float, ...]: _each(lambda value: _is_duration_or_p(value) and value <= 1.0),
    tuple[str, ...]: _each(_is_text),
    tuple[bytes, ...]: _each(lambda value: _is_tokens(value) and len(value) > 0),
}
_CHECKS = {
    record: {name: _TYPE_CHECKS[hint] for name, hint in get_type_hints(record).items()} for record in _KINDS.values()
}
