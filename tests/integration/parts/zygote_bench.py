"""A real zygote and what is forked from it, with this process as the supervisor: no gateway answers the workers."""

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil

from ostraka.children import ForkFailed
from ostraka.forking import (
    ForkedProcess,
    Zygote,
)
from ostraka.restarts import RestartPolicy
from ostraka_shared.model_folder import ModelFolder
from ostraka_shared.options import to_flags
from ostraka_shared.process_control import _libc
from ostraka_worker.config import WorkerConfig, ZygoteConfig
from tests.waiting import wait_until


class Bench:
    def __init__(self, model: ModelFolder, folder: Path) -> None:
        self.run_dir = folder / "run"
        self.run_dir.mkdir(mode=0o700)
        self.model = model
        self.others = {child.pid for child in psutil.Process().children()}
        self.all_asked: list[ForkedProcess] = []
        self.zygote = Zygote("zygote", self._command, RestartPolicy(random.random))
        self.zygote.start()

    def _command(self, _: int) -> list[str]:
        config = ZygoteConfig(str(self.model.path), self.zygote.pass_fds[0], log_format="json")
        return ["-m", "ostraka_worker.zygote", *to_flags(config)]

    def flags(self, name: str) -> list[str]:
        config = WorkerConfig((f"ipc://{self.run_dir}/workers.sock",), str(self.model.path), name, log_format="json")
        return to_flags(config)

    def ask(self, name: str = "w0") -> ForkedProcess:
        asked = self.zygote.fork(self.flags(name))
        assert asked
        self.all_asked.append(asked)
        return asked

    def fork(self, name: str = "w0") -> ForkedProcess:
        """One that serves: it takes SIGTERM in its own way."""
        asked = self.ask(name)
        wait_until(lambda: asked.poll() or asked.has_served)
        assert asked.poll() is None
        assert catches(asked.pid, signal.SIGTERM)
        assert psutil.Process(asked.pid).name() == f"ostraka {name}"
        return asked

    def failure(self, asked: ForkedProcess) -> str:
        def failed() -> str | None:
            try:
                assert asked.poll() is None
            except ForkFailed as bad:
                return str(bad)
            return None

        found = wait_until(failed)
        assert found
        return found

    @property
    def process(self) -> psutil.Process:
        assert self.zygote.process
        return psutil.Process(self.zygote.process.pid)

    def spare(self) -> psutil.Process:
        def found() -> psutil.Process | None:
            each: psutil.Process
            for each in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess):  # it ends just now
                    if each.name() == "ostraka spare" and each.status() != psutil.STATUS_STOPPED:
                        return each
            return None

        return wait_until(found)  # type: ignore[return-value]

    def close(self) -> None:
        self.zygote.hang_up()
        for asked in self.all_asked:
            if asked.channel:
                asked.channel.close()
        if self.zygote.process:
            self.zygote.send(signal.SIGKILL)
            self.zygote.process.wait()
        while mine := [child for child in psutil.Process().children() if child.pid not in self.others]:
            for child in mine:
                child.kill()
                with contextlib.suppress(ChildProcessError):  # not everyone's parent is this process yet
                    os.waitpid(child.pid, 0)


def catches(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def bench_of(model: ModelFolder, folder: Path) -> Iterator[Bench]:
    found = Bench(model, folder)
    try:
        yield found
    finally:
        found.close()
        _libc.prctl(36, 0, 0, 0, 0)  # other tests' orphans are not ours
