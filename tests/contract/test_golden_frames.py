"""The bytes on the wire, frozen. A change here is a change of the protocol: raise PROTOCOL_VERSION with it."""

from pathlib import Path

import msgpack
import pytest

from ostraka_shared.codec import _KINDS, decode, encode
from ostraka_shared.messages import PROTOCOL_VERSION, Refused
from tests.records import GOLDEN

FOLDER = Path(__file__).parent / "golden"


def golden_bytes(name: str) -> bytes:
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text(encoding="ascii"))


def test_each_kind_has_a_golden_frame_and_each_frame_a_record():
    assert {type(message) for message in GOLDEN.values()} == set(_KINDS.values())
    assert {path.stem for path in FOLDER.glob("*.hex")} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_frame_is_its_record(name):
    assert decode(golden_bytes(name)) == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_is_its_golden_frame(name):
    assert encode(GOLDEN[name]).hex() == golden_bytes(name).hex()


@pytest.mark.parametrize("name", GOLDEN)
def test_any_messagepack_reader_finds_version_and_kind_first(name):
    frame = msgpack.unpackb(golden_bytes(name))
    assert list(frame)[:2] == ["v", "kind"]
    assert frame["v"] == PROTOCOL_VERSION == 3
    assert frame["kind"] == type(GOLDEN[name]).__name__.upper()


@pytest.mark.parametrize("version", [1, 2, PROTOCOL_VERSION, 9])
def test_a_refusal_has_one_form_in_all_versions(version):
    """A worker of any of them must be able to read why it is not wanted."""
    frame = msgpack.unpackb(encode(Refused("wrong_version", "why"), version))
    assert frame == {"v": version, "kind": "REFUSED", "code": "wrong_version", "message": "why"}
    assert msgpack.unpackb(golden_bytes("refused")).keys() == frame.keys()


def test_tokens_are_little_endian_uint32():
    work = msgpack.unpackb(golden_bytes("work"))
    assert [int.from_bytes(work["prefix"][at : at + 4], "little") for at in (0, 4, 8)] == [1, 1234, 65535]
