import math
import pickle

import msgpack
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ostraka_shared import codec
from ostraka_shared.codec import MAX_FRAME_BYTES, MAX_ITEMS, MAX_TEXT_BYTES, decode, encode
from ostraka_shared.errors import WireError
from ostraka_shared.messages import Bye, Failed, Result, Started, Welcome, Work
from tests.records import GOLDEN, any_message

REASONS = dict.fromkeys(("garbage", "oversize", "unknown_kind", "wrong_version", "wrong_field"))
"""Metric labels: another one is a KeyError."""
NAMES = st.sampled_from(sorted(GOLDEN))
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8) | st.binary()
ANYTHING = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)


def frame_of(name, **changes):
    return {**msgpack.unpackb(encode(GOLDEN[name])), **changes}


def refused(frame, reason):
    with pytest.raises(WireError) as bad:
        decode(frame if isinstance(frame, bytes) else msgpack.packb(frame))
    assert bad.value.reason == reason
    assert len(str(bad.value)) < 600
    return str(bad.value)


def decode_or_refuse(frame):
    """A message, or None; any exception but WireError is a bug."""
    try:
        return decode(frame)
    except WireError as bad:
        return REASONS[bad.reason]


@given(any_message())
def test_every_message_comes_back_as_it_was(message):
    assert decode(encode(message)) == message


@given(any_message())
def test_a_message_that_comes_back_is_of_plain_immutable_types(message):
    back = decode(encode(message))
    assert type(back) is type(message)
    assert hash(back) == hash(message)


@given(st.binary(max_size=200))
def test_bytes_are_a_message_or_a_wire_error(frame):
    decode_or_refuse(frame)


@given(ANYTHING)
def test_messagepack_of_anything_is_a_message_or_a_wire_error(value):
    decode_or_refuse(msgpack.packb(value))


@given(NAMES, st.data())
def test_any_value_in_any_field_is_a_message_or_a_wire_error(name, data):
    frame = frame_of(name)
    key = data.draw(st.sampled_from(sorted(frame)))
    frame[key] = data.draw(ANYTHING)
    message = decode_or_refuse(msgpack.packb(frame))
    assert message is None or decode(encode(message)) == message


@given(NAMES, st.data())
def test_a_golden_frame_with_one_byte_changed_is_a_valid_message_or_a_wire_error(name, data):
    frame = bytearray(encode(GOLDEN[name]))
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    message = decode_or_refuse(bytes(frame))
    if message is not None:  # what was let in keeps every bound: it can be sent on, and means the same there
        assert decode(encode(message)) == message


@pytest.mark.parametrize("name", ["drain", "welcome", "work_without_prefix"])
def test_every_single_byte_change_of_a_frame(name):
    golden = encode(GOLDEN[name])
    for at in range(len(golden)):
        for byte in range(256):
            message = decode_or_refuse(golden[:at] + bytes([byte]) + golden[at + 1 :])
            assert message is None or decode(encode(message)) == message


@given(NAMES, st.data())
def test_a_cut_frame_is_garbage(name, data):
    frame = encode(GOLDEN[name])
    refused(frame[: data.draw(st.integers(0, len(frame) - 1))], "garbage")


@given(NAMES, st.binary(min_size=1, max_size=8))
def test_a_trailing_byte_is_garbage(name, rest):
    refused(encode(GOLDEN[name]) + rest, "garbage")


@pytest.mark.parametrize("name", GOLDEN)
def test_two_messages_in_one_frame_are_garbage(name):
    refused(encode(GOLDEN[name]) * 2, "garbage")


@given(PLAIN | st.tuples(PLAIN, PLAIN) | st.lists(PLAIN, max_size=3))
@settings(max_examples=30)
def test_pickles_are_refused(value):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert decode_or_refuse(pickle.dumps(value, protocol)) is None


def test_a_pickle_inside_a_field_stays_bytes():
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    body = pickle.dumps(Trap())
    body += b"." * (-len(body) % 4)
    assert decode(encode(Work("r", 1, 1, body, (body,)))).prefix == body


@pytest.mark.parametrize("code", [-1, 0, 1, 42, 127])
@pytest.mark.parametrize("size", [0, 1, 4, 8, 12])
def test_extension_types_are_refused(code, size):
    """Code -1 is MessagePack's timestamp."""
    raw = {"v": 1, "kind": "BYE", "reason": msgpack.ExtType(code, b"\0" * size) if code >= 0 else None}
    frame = msgpack.packb(raw)
    if code < 0:
        frame = frame[:-1] + b"\xc7" + bytes([size]) + b"\xff" + b"\0" * size
    assert decode_or_refuse(frame) is None


@pytest.mark.parametrize("version", [0, 1, 2, 4, -1, 2**63, True, 3.0, "3", None, [3]])
def test_another_version_is_refused(version):
    refused(frame_of("bye", v=version), "wrong_version")


@pytest.mark.parametrize(
    ("version", "known"), [(0, 0), (2, 2), (99, 99), (-1, None), (2**63, None), (True, None), ("3", None)]
)
def test_who_speaks_another_version_can_be_told_so_in_it(version, known):
    with pytest.raises(WireError) as bad:
        decode(msgpack.packb(frame_of("bye", v=version)))
    assert bad.value.version == known


def test_a_frame_without_version_is_refused():
    frame = frame_of("bye")
    del frame["v"]
    refused(frame, "wrong_version")


@pytest.mark.parametrize("kind", ["bye", "CANCELLED", "", "__CLASS__", 1, None, b"BYE", ["BYE"], {"BYE": 1}])
def test_an_unknown_kind_is_refused(kind):
    refused(frame_of("bye", kind=kind), "unknown_kind")


@pytest.mark.parametrize("depth", [10, 500, 900, 1000, 1020])
@pytest.mark.parametrize("key", ["v", "kind", "reason"])
def test_a_value_nested_deeply_is_refused_before_it_is_described(key, depth):
    nested = b"\x91" * depth + b"\xc0"
    frame = {"v": b"\x01", "kind": b"\xa3BYE", "reason": b"\xa0", key: nested}
    assert decode_or_refuse(b"\x83" + b"".join(msgpack.packb(k) + value for k, value in frame.items())) is None


@pytest.mark.parametrize("name", [name for name in GOLDEN if name != "drain"])
def test_a_missing_field_is_refused(name):
    for key in frame_of(name).keys() - {"v", "kind"}:
        frame = frame_of(name)
        del frame[key]
        refused(frame, "wrong_field")


@pytest.mark.parametrize("name", GOLDEN)
def test_a_field_too_many_is_refused(name):
    refused(frame_of(name, more=1), "wrong_field")


@pytest.mark.parametrize("name", GOLDEN)
def test_no_field_takes_none_or_a_map(name):
    for key in frame_of(name).keys() - {"v", "kind"}:
        refused(frame_of(name, **{key: None}), "wrong_field")
        refused(frame_of(name, **{key: {}}), "wrong_field")


WRONG = [
    ("welcome", "heartbeat_ms", True),
    ("welcome", "heartbeat_ms", -1),
    ("welcome", "heartbeat_ms", 2**63),
    ("welcome", "heartbeat_ms", 500.0),
    ("hello", "cores", [0, True]),
    ("hello", "cores", [-1]),
    ("hello", "worker_id", b"w0"),
    ("work", "attempt", False),
    ("work", "prefix", b"\0\0\0"),
    ("work", "prefix", "\0\0\0\0"),
    ("work", "suffixes", [b""]),
    ("work", "suffixes", [b"\0" * 5]),
    ("work", "suffixes", b"\0\0\0\0"),
    ("started", "request_ids", ["a", 1]),
    ("started", "request_ids", "a"),
    ("result", "p_yes", [0.5, math.nan]),
    ("result", "p_yes", [math.inf]),
    ("result", "p_yes", [1.0000001]),
    ("result", "p_yes", [-1e-9]),
    ("result", "p_yes", [1]),
    ("result", "p_yes", [True]),
    ("result", "queue_ms", math.nan),
    ("result", "queue_ms", -0.1),
    ("result", "inference_ms", math.inf),
    ("result", "inference_ms", 1),
    ("failed", "code", None),
    ("bye", "reason", 0),
]


@pytest.mark.parametrize(("name", "key", "value"), WRONG)
def test_a_value_out_of_type_or_bounds_is_refused(name, key, value):
    assert key in refused(frame_of(name, **{key: value}), "wrong_field")


@pytest.mark.parametrize(
    "message",
    [
        Welcome(-1),
        Welcome(2**70),
        Welcome(True),
        Bye("x" * (MAX_TEXT_BYTES + 1)),
        Bye("θ" * (MAX_TEXT_BYTES // 2 + 1)),
        Bye("lone \ud800 surrogate"),
        Started(("a",) * (MAX_ITEMS + 1), 1),
        Result("r", 1, (math.nan,), 0.0, 0.0),
        Result("r", 1, (0.5,), math.inf, 0.0),
        Result("r", 1, (1,), 0.0, 0.0),
        Work("r", 1, 1, b"abc", (b"abcd",)),
        Work("r", 1, 1, b"", (b"",)),
        Failed("r", 1, "code", b"bytes"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_the_other_side_would_drop_is_not_sent(message):
    """A dropped RESULT or WORK would be missed by nobody until the deadline."""
    with pytest.raises(WireError) as bad:
        encode(message)
    assert bad.value.reason == "wrong_field"


def test_texts_and_lists_of_the_full_size_pass():
    for message in (Bye("x" * MAX_TEXT_BYTES), Bye("θ" * (MAX_TEXT_BYTES // 2)), Started(("",) * MAX_ITEMS, 1)):
        assert decode(encode(message)) == message


def test_a_text_too_long_is_refused():
    refused(frame_of("bye", reason="x" * (MAX_TEXT_BYTES + 1)), "garbage")


def test_a_list_too_long_is_refused():
    refused(frame_of("started", request_ids=[""] * (MAX_ITEMS + 1)), "garbage")


def test_a_frame_too_large_is_neither_sent_nor_read():
    half = b"\0" * (MAX_FRAME_BYTES // 2)
    with pytest.raises(WireError) as bad:
        encode(Work("r", 1, 1, half, (half,)))
    assert bad.value.reason == "oversize"
    refused(b"\0" * (MAX_FRAME_BYTES + 1), "oversize")


def test_a_frame_of_the_full_size_passes():
    room = MAX_FRAME_BYTES - len(encode(Work("r", 1, 1, b"", (b"abcd",)))) - 3  # bin 32 has three bytes more
    work = Work("r", 1, 1, b"\0" * (room - room % 4), (b"abcd",))
    assert MAX_FRAME_BYTES - 4 < len(encode(work)) <= MAX_FRAME_BYTES
    assert decode(encode(work)) == work


@given(st.binary(max_size=6) | st.integers(0, 2**64 - 1) | st.booleans() | st.none())
def test_map_keys_must_be_text(key):
    refused({key: 1}, "garbage")


@pytest.mark.parametrize("value", [None, 1, "BYE", b"BYE", [], [["v", 1], ["kind", "DRAIN"]], {}])
def test_a_frame_is_a_map(value):
    refused(value, "wrong_version" if value == {} else "garbage")


def test_text_must_be_utf8():
    frame = encode(Bye("abcd"))
    refused(frame.replace(b"abcd", b"\xff\xfeab"), "garbage")


@given(any_message(), any_message())
def test_different_messages_have_different_frames(one, other):
    assume(one != other)
    assert encode(one) != encode(other)


def test_the_schema_is_closed():
    """Every field of every kind has a check, and no check lets everything pass."""
    for record, checks in codec._CHECKS.items():
        for name, check in checks.items():
            assert not check(object()), (record, name)
            assert not check(None), (record, name)
