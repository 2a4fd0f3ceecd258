"""A head of which a proxy might think otherwise is told so before anything looks at the request."""

import pytest

from ostraka_gateway.framing import fault_of_framing
from ostraka_shared.errors import UnknownTransferCoding, Unreadable


@pytest.mark.parametrize(
    "host",
    [b"", b"a", b"a:", b"a:8017", b"127.0.0.1:80", b"[::1]", b"[fe80::1%25eth0]:80", b"my_service", b"a.b.:1", b"a \t"],
)
def test_one_host_in_whatever_form(host):
    assert fault_of_framing("1.1", host, []) is None


@pytest.mark.parametrize(
    "host",
    [b"a, b", b"a,b", b"a b", b"a/b", b"a:b", b"a:1:2", b"::1", b"[::1", b"me@a", b"a?", b"caf\xc3\xa9", b"a\x7f"],
)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_no_other_host(version, host):
    assert isinstance(fault_of_framing(version, host, []), Unreadable)


def test_only_an_old_client_may_leave_its_host_out():
    assert fault_of_framing("1.0", None, []) is None
    assert "host" in str(fault_of_framing("1.1", None, []))


@pytest.mark.parametrize("version", ["0.9", "2.0"])
def test_other_versions_are_not_spoken(version):
    assert version in str(fault_of_framing(version, b"a", []))


@pytest.mark.parametrize("codings", [[b"chunked"], [b"Chunked"], [b" chunked\t"]])
def test_a_body_may_come_in_chunks_but_not_from_an_old_client(codings):
    assert fault_of_framing("1.1", b"a", codings) is None
    assert "HTTP/1.0" in str(fault_of_framing("1.0", None, codings))


@pytest.mark.parametrize(
    "codings",
    [[b"gzip, chunked"], [b"gzip", b"chunked"], [b"identity,chunked"], [b",chunked"], [b"chunked;q=1, chunked"]],
)
def test_what_is_coded_besides_is_not_read(codings):
    assert isinstance(fault_of_framing("1.1", b"a", codings), UnknownTransferCoding)


@pytest.mark.parametrize(
    "codings",
    [[b""], [b"gzip"], [b"chunked, gzip"], [b"chunked,"], [b"chunked", b"chunked"], [b"chunked, gzip, chunked"]],
)
def test_what_does_not_end_with_chunked_has_no_end(codings):
    assert isinstance(fault_of_framing("1.1", b"a", codings), Unreadable)
