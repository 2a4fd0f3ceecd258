"""A process that has loaded what several need, and forks them as the supervisor asks for them.

    supervisor ──control: one channel a fork──► zygote ──the channel──► spare, which then is what was asked for
        ▲                                                                 │
        └── the channel: arguments, sockets ─►  ◄─ pid or refusal  ─► go  ◄─ that it serves

A spare is forked ahead, so that it is there in no time. It is no child of the zygote but of the supervisor, the
subreaper: that sees it exit, and the zygote's death costs nothing that runs. A spare that has no channel yet ends with
the zygote; whoever has one ends with the supervisor.

Forking is safe here because there is one thread, no ZeroMQ context and no lock in anyone's hand: checked at each fork.
"""

import contextlib
import gc
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NoReturn, Protocol, TypeVar

import structlog

from ostraka_shared.errors import OstrakaError
from ostraka_shared.logs import configure_logs
from ostraka_shared.options import add_options, build_parser, read_settings
from ostraka_shared.process_control import count_threads, die_with_parent, give_back_memory, name_process
from ostraka_shared.stray_signals import log_stray_signals

log = structlog.get_logger()

LOADED = b"loaded"
HANDED = b"handed"
"""For each channel, in their order: a spare has it, or it was refused. What is silent then is the spare."""
SERVING = b"serving"
"""The last that a fork says on its channel: whoever dies before may have that from what it is forked from."""
MESSAGE_BYTES = 1 << 16
"""The longest is a command line, whose paths and endpoints are of a few kilobytes at most; a longer datagram would be
cut short."""
MOST_SOCKETS = 8
EXIT_FAILED = 1


class CannotFork(Exception):
    """For the log of whoever asked: it starts one that loads for itself then."""


class Life(Protocol):
    """What a fork is for. `spare_name`: as `ps` shows it until its turn comes."""

    spare_name: str

    def prepare(self) -> bool:
        """Before its turn; False where it is not fit for it."""

    def live(self, arguments: list[str], sockets: Sequence[int], on_serving: Callable[[], None]) -> int:
        """Its turn. The exit code. `sockets`: descriptors that it was given, in their order. `on_serving`: to be called
        once it has come so far that it can."""


class ZygoteSettings(Protocol):
    @property
    def control_fd(self) -> int:
        """The socket on which the supervisor asks."""


Settings = TypeVar("Settings", bound=ZygoteSettings)


@dataclass(frozen=True, slots=True)
class Program(Generic[Settings]):
    """`log_name`: in each line of the log; `ps_name`: as `ps` shows it."""

    module: str
    description: str
    settings: type[Settings]
    log_name: str
    ps_name: str


def run_program(program: Program[Settings], load: Callable[[Settings], Life], argv: Sequence[str] | None) -> int:
    """A zygote's `main`: until the supervisor hangs up. The exit code."""
    parser = build_parser(program.module, program.description)
    add_options(parser, program.settings)
    values = parser.parse_args(argv)
    configure_logs(program.log_name, values.log_format, values.log_level)
    log_stray_signals()
    name_process(program.ps_name)
    try:
        settings = read_settings(program.settings, values)
        with socket.socket(fileno=settings.control_fd) as control:
            Zygote(control, load(settings)).serve()
    except (OstrakaError, OSError, RuntimeError, MemoryError) as bad:
        log.error("zygote_failed", error=type(bad).__name__, detail=str(bad))
        return EXIT_FAILED
    return 0


class Zygote:
    """To be made once all is loaded, by the main thread, while nothing else uses `control`."""

    def __init__(self, control: socket.socket, life: Life) -> None:
        self._control = control
        self._life = life
        self._supervisor = os.getppid()
        self._spare: socket.socket | None = None

    def serve(self) -> None:
        """Until the supervisor hangs up. Raises OSError."""
        # A collection would write to every object, and so make each fork a copy of its own of what it shares.
        gc.collect()
        gc.freeze()
        give_back_memory()
        self._control.send(LOADED)
        self._replace_spare()
        while True:
            _, fds, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 1)
            if not fds:
                return
            with socket.socket(fileno=fds[0]) as channel:
                try:
                    self._hand_over(channel)
                except CannotFork as bad:
                    _refuse(channel, str(bad))
            with contextlib.suppress(OSError):  # the supervisor hangs up
                self._control.send(HANDED)
            self._replace_spare()

    def _replace_spare(self) -> None:
        """What stands in its way is told to whoever asks next."""
        try:
            self._spare = self._fork_spare()
        except CannotFork as bad:
            log.warning("cannot_fork", detail=str(bad))

    def _hand_over(self, channel: socket.socket) -> None:
        """To the spare, or where that has died, to another. Raises CannotFork."""
        spare, self._spare = self._spare, None
        if (spare is None or not _pass_on(spare, channel)) and not _pass_on(self._fork_spare(channel), channel):
            raise CannotFork("a fork died before it was given anything to do")

    def _fork_spare(self, *held: socket.socket) -> socket.socket:
        """`held`: what else of ours it is not to keep. Raises CannotFork."""
        if (threads := count_threads()) != 1:
            raise CannotFork(f"the process that loads has {threads} threads, and only one of them is forked")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                _fork_for_the_reaper(lambda: self._live_as_spare((self._control, ours, *held), theirs))
            except OSError as bad:
                ours.close()
                raise CannotFork(f"fork fails here ({bad.strerror})") from bad
        return ours

    def _live_as_spare(self, zygotes: Iterable[socket.socket], calls: socket.socket) -> int:
        """From here on in another process, whose parent is the supervisor."""
        if not die_with_parent() or os.getppid() != self._supervisor:
            return EXIT_FAILED
        os.setpgid(0, 0)  # as the supervisor's other children: Ctrl-C is not for them
        name_process(self._life.spare_name)
        for each in zygotes:
            each.close()
        if not self._life.prepare():
            return EXIT_FAILED
        _, fds, _, _ = socket.recv_fds(calls, MESSAGE_BYTES, 1)
        calls.close()
        return self._take_turn(socket.socket(fileno=fds[0])) if fds else 0

    def _take_turn(self, channel: socket.socket) -> int:
        with channel:
            message, sockets, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, MOST_SOCKETS)
            _send(channel, {"pid": os.getpid()})
            if not channel.recv(MESSAGE_BYTES):
                return 0  # given up meanwhile: another one has its name by now
            return self._life.live(json.loads(message), sockets, lambda: _say_serving(channel))


def _pass_on(spare: socket.socket, channel: socket.socket) -> bool:
    with spare:
        try:
            socket.send_fds(spare, [b"turn"], [channel.fileno()])
        except OSError:
            return False
    return True


def _refuse(channel: socket.socket, reason: str) -> None:
    channel.recv(MESSAGE_BYTES)  # closed with the arguments unread, it would seem to have broken
    _send(channel, {"refused": reason})


def _say_serving(channel: socket.socket) -> None:
    with contextlib.suppress(OSError), channel:  # the supervisor has ended, and the system is about to end us
        channel.send(SERVING)


def _send(channel: socket.socket, report: dict[str, object]) -> None:
    try:
        channel.send(json.dumps(report).encode())
    except OSError:
        log.debug("nobody_waits", **report)


def _fork_for_the_reaper(life: Callable[[], int]) -> None:
    """`life` is lived by a grandchild, once the child between has ended and the subreaper is its parent. Raises OSError
    where the child cannot be made; a grandchild that cannot be made is as one that died at once."""
    wait_fd, go_fd = os.pipe()
    try:
        between = os.fork()
        if not between:
            _leave_after(lambda: 0 if os.fork() else _begin(wait_fd, go_fd, life))
        os.waitpid(between, 0)
        os.write(go_fd, b"!")
    finally:
        os.close(wait_fd)
        os.close(go_fd)


def _begin(wait_fd: int, go_fd: int, life: Callable[[], int]) -> int:
    os.close(go_fd)
    is_adopted = os.read(wait_fd, 1)  # nothing where the zygote died
    os.close(wait_fd)
    return life() if is_adopted else 0


def _leave_after(life: Callable[[], int]) -> NoReturn:
    """Never back up the stack, which is the zygote's."""
    code = EXIT_FAILED
    try:
        code = life()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else EXIT_FAILED
    except BaseException:
        log.exception("fork_failed")
    finally:
        sys.stderr.flush()
        os._exit(code)
