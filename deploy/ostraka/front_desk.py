"""Where `ostraka rollout` reaches the supervisor: a unix socket in the run directory, which is its owner's alone. One
asks at a time; a JSON datagram each way.
"""

import contextlib
import json
import socket
from pathlib import Path
from typing import Any, Self

from ostraka_shared.errors import ConfigError

SOCKET_NAME = "control.sock"
MESSAGE_BYTES = 1 << 16
"""A wish has one path, of 4 kB at most; a phase has a few figures and a reason. A longer one would be cut short."""
BUSY = "another rollout is under way: wait for its end"


class FrontDesk:
    def __init__(self, run_dir: Path) -> None:
        """Raises ConfigError."""
        self.path = run_dir / SOCKET_NAME
        self.path.unlink(missing_ok=True)  # of a server that was killed: the run directory is locked, or fresh
        self._door = self._open()
        self._visitor: socket.socket | None = None

    def rebind(self) -> None:
        """Where the socket's file is gone. Who is being served still is. Raises ConfigError."""
        lost, self._door = self._door, self._open()
        lost.close()

    def _open(self) -> socket.socket:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            door.bind(str(self.path))
            door.listen()
        except OSError as bad:
            door.close()
            raise ConfigError(f"{self.path} cannot be listened on: {bad}") from bad
        door.settimeout(0.0)
        return door

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_visit()
        self._door.close()
        self.path.unlink(missing_ok=True)

    @property
    def sockets(self) -> list[socket.socket]:
        return [self._door, *([self._visitor] if self._visitor else [])]

    @property
    def has_visitor(self) -> bool:
        return self._visitor is not None

    def take(self) -> dict[str, Any] | None:
        """What was asked, if something was."""
        with contextlib.suppress(OSError):
            found, _ = self._door.accept()
            if self._visitor:
                with found:
                    _send(found, {"refused": BUSY})
            else:
                found.settimeout(0.0)
                self._visitor = found
        if self._visitor is None:
            return None
        try:
            message = self._visitor.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            message = b""
        if not message:
            self.close_visit()
            return None
        return _parse(message)

    def say(self, message: dict[str, Any]) -> None:
        """To whoever asked; who has gone, or does not listen, is noticed by `take`."""
        if self._visitor:
            _send(self._visitor, message)

    def refuse(self, reason: str) -> None:
        self.say({"refused": reason})
        self.close_visit()

    def close_visit(self) -> None:
        if self._visitor:
            self._visitor.close()
            self._visitor = None


def _send(to: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        to.send(json.dumps(message).encode())


def _parse(message: bytes) -> dict[str, Any]:
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"unreadable": True}
