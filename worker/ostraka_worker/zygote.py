"""`python -m ostraka_worker.zygote`: loads the model once, and forks the workers that the supervisor asks for.

    supervisor ──control: one channel a worker──► zygote ──the channel──► spare, which then is the worker
        ▲                                                                   │
        └────── the channel: settings ─►  ◄─ pid or refusal  ─► go ─────────┘

A spare is forked ahead and has made a call, so that a worker is there in the time it takes to dial the gateway. It is
no child of the zygote but of the supervisor, the subreaper: that sees it exit, and the zygote's death costs no worker.
A spare that has no channel yet ends with the zygote; whoever has one ends with the supervisor.

Forking is safe here because there is one thread, no ZeroMQ context and no lock in anyone's hand: checked at each fork.
"""

import gc
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import structlog

from ostraka_shared.errors import OstrakaError
from ostraka_shared.logs import configure_logs
from ostraka_shared.model_folder import open_folder
from ostraka_shared.options import add_options, build_parser, read_settings
from ostraka_shared.process_control import count_threads, die_with_parent, give_back_memory, name_process
from ostraka_shared.stray_signals import log_stray_signals
from ostraka_worker.__main__ import EXIT_CANNOT_SERVE
from ostraka_worker.__main__ import main as work
from ostraka_worker.config import ZygoteConfig
from ostraka_worker.loading import Warm, load_verified
from ostraka_worker.own_memory import own_mapped
from ostraka_worker.service import warm_up

log = structlog.get_logger()

LOADED = b"loaded"
MESSAGE_BYTES = 1 << 16
"""The longest is a worker's command line, whose paths and endpoints are of a few kilobytes at most; a longer datagram
would be cut short."""


class CannotFork(Exception):
    """For the log of whoever asked: it loads a worker for itself then."""


def main(argv: list[str] | None = None) -> int:
    parser = build_parser("ostraka_worker.zygote", "Loads a model and forks workers; started by `ostraka serve`.")
    add_options(parser, ZygoteConfig)
    values = parser.parse_args(argv)
    configure_logs("zygote", values.log_format, values.log_level)
    log_stray_signals()
    name_process("ostraka zygote")
    try:
        config = read_settings(ZygoteConfig, values)
        with socket.socket(fileno=config.control_fd) as control:
            warm = load_warm(config)
            control.send(LOADED)
            Zygote(control, warm, os.getppid()).serve()
    except (OstrakaError, OSError, RuntimeError, MemoryError) as bad:
        log.error("cannot_fork_workers", error=type(bad).__name__, detail=str(bad))
        return EXIT_CANNOT_SERVE
    return 0


def load_warm(config: ZygoteConfig) -> Warm:
    if config.cores:
        os.sched_setaffinity(0, config.cores)
    begun = time.monotonic()
    folder = open_folder(Path(config.model))
    loaded = load_verified(folder, threads=1)
    own_mapped(folder.path / name for name in folder.hashes)  # from here on, the files are needed no more
    loaded.check_files()
    warm = Warm(loaded, warm_up(loaded.engine), loaded.proof())
    # A collection would write to every object, and so make each worker a copy of its own of what it shares.
    gc.collect()
    gc.freeze()
    give_back_memory()
    log.info("model_loaded", model=loaded.folder.spec.name, load_s=round(time.monotonic() - begun, 2))
    return warm


class Zygote:
    def __init__(self, control: socket.socket, warm: Warm, supervisor: int) -> None:
        self._control = control
        self._warm = warm
        self._supervisor = supervisor
        self._spare: socket.socket | None = None

    def serve(self) -> None:
        """Until the supervisor hangs up."""
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
        if (spare is None or not _pass_on(spare, channel)) and not _pass_on(self._fork_spare(), channel):
            raise CannotFork("a forked worker died before it was given anything to do")

    def _fork_spare(self) -> socket.socket:
        if (threads := count_threads()) != 1:
            raise CannotFork(f"the process that loaded the model has {threads} threads, and only one of them is forked")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                _fork_for_the_reaper(lambda: self._live_as_spare(ours, theirs))
            except OSError as bad:
                ours.close()
                raise CannotFork(f"fork fails here ({bad.strerror})") from bad
        return ours

    def _live_as_spare(self, zygotes_end: socket.socket, calls: socket.socket) -> int:
        """From here on in another process, whose parent is the supervisor."""
        if not die_with_parent() or os.getppid() != self._supervisor:
            return EXIT_CANNOT_SERVE
        os.setpgid(0, 0)  # as the supervisor's other children: Ctrl-C is not for them
        name_process("ostraka spare")
        zygotes_end.close()
        self._control.close()
        if self._warm.loaded.proof() != self._warm.proof:
            log.error("fork_answers_otherwise")
            return EXIT_CANNOT_SERVE
        _, fds, _, _ = socket.recv_fds(calls, MESSAGE_BYTES, 1)
        calls.close()
        return self._become_worker(socket.socket(fileno=fds[0])) if fds else 0

    def _become_worker(self, channel: socket.socket) -> int:
        with channel:
            arguments = json.loads(channel.recv(MESSAGE_BYTES))
            _send(channel, {"pid": os.getpid()})
            if not channel.recv(MESSAGE_BYTES):
                return 0  # given up meanwhile: another one has its name by now
        return work(arguments, self._warm)


def _pass_on(spare: socket.socket, channel: socket.socket) -> bool:
    with spare:
        try:
            socket.send_fds(spare, [b"work"], [channel.fileno()])
        except OSError:
            return False
    return True


def _refuse(channel: socket.socket, reason: str) -> None:
    channel.recv(MESSAGE_BYTES)  # closed with the settings unread, it would seem to have broken
    _send(channel, {"refused": reason})


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
    code = EXIT_CANNOT_SERVE
    try:
        code = life()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else EXIT_CANNOT_SERVE
    except BaseException:
        log.exception("worker_failed")
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
