"""What a request's head must say of whose it is and of how its body comes (RFC 9112, 3.2 and 6.1). Pure.

Where a server guesses, and the proxy before it guesses otherwise, one client's bytes become another's request.
"""

import re
from collections.abc import Sequence

from ostraka_shared.errors import RequestError, UnknownTransferCoding, Unreadable

VERSIONS = frozenset({"1.0", "1.1"})
CHUNKED = b"chunked"
_HOST = re.compile(rb"(\[[0-9A-Za-z._~!$&'()*+;=:%-]+\]|[0-9A-Za-z._~!$&'()*+;=%-]*)(:[0-9]*)?")
"""A name, an IPv4 address or one in brackets, and a port; or nothing. No comma: two that a proxy made one."""


def fault_of_framing(version: str, host: bytes | None, transfer_encodings: Sequence[bytes]) -> RequestError | None:
    """`host`: None where there is no such header. `transfer_encodings`: the values, a header each."""
    if version not in VERSIONS:
        return Unreadable(f"this server speaks HTTP/1.1, not HTTP/{version}")
    if host is None and version == "1.1":
        return Unreadable("a request of HTTP/1.1 should have a host header")
    if host is not None and not _HOST.fullmatch(host.strip(b" \t")):
        return Unreadable("the host header should be one name or address, and a port if need be")
    return _fault_of_codings(version, transfer_encodings) if transfer_encodings else None


def _fault_of_codings(version: str, transfer_encodings: Sequence[bytes]) -> RequestError | None:
    if version == "1.0":
        return Unreadable("HTTP/1.0 has no transfer-encoding: say how long the body is with content-length")
    *others, last = [each.strip(b" \t").lower() for each in b",".join(transfer_encodings).split(b",")]
    if last != CHUNKED or CHUNKED in others:
        return Unreadable("transfer-encoding should end with chunked, once: nothing else says where the body ends")
    if others:
        return UnknownTransferCoding(
            "no transfer-encoding but chunked is read here: encode the body itself, and say how with content-encoding"
        )
    return None
