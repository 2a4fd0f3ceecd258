"""The workers' socket, and a peer that holds its link and answers nothing, as a process does that is stopped."""

import asyncio
import socket

import pytest

from ostraka_gateway import transport
from ostraka_gateway.transport import WorkerSocket

GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0" * 32
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
WAIT_S = 10.0


def connect(endpoint: str) -> socket.socket:
    scheme, _, place = endpoint.partition("://")
    if scheme == "tcp":
        host, _, port = place.rpartition(":")
        return socket.create_connection((host, int(port)))
    link = socket.socket(socket.AF_UNIX)
    link.connect(place)
    return link


def shake_hands(link: socket.socket) -> None:
    link.settimeout(WAIT_S)
    link.sendall(GREETING)
    link.recv(len(GREETING), socket.MSG_WAITALL)
    link.sendall(b"\x04" + bytes([len(READY)]) + READY)
    _, size = link.recv(2, socket.MSG_WAITALL)
    link.recv(size, socket.MSG_WAITALL)


def is_cut_off(link: socket.socket, within_s: float) -> bool:
    link.settimeout(within_s)
    try:
        while link.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(("scheme", "is_cut"), [("tcp", True), ("ipc", False)])
def test_only_a_link_whose_end_the_system_might_not_tell_is_cut_for_standing_still(
    tmp_path, monkeypatch, scheme, is_cut
):
    monkeypatch.setattr(transport, "HEARTBEAT_IVL_MS", 10)
    monkeypatch.setattr(transport, "HEARTBEAT_TIMEOUT_MS", 20)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"tcp://127.0.0.1:{port}" if scheme == "tcp" else f"ipc://{tmp_path}/workers.sock"

    async def hold() -> bool:
        workers = WorkerSocket(lambda *_: None, lambda *_: None)
        workers.bind(endpoint)
        try:
            with connect(endpoint) as link:
                shake_hands(link)
                return is_cut_off(link, WAIT_S if is_cut else 0.2)
        finally:
            workers.close()

    assert asyncio.run(hold()) is is_cut
