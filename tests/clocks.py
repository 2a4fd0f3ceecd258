"""Time that moves only when a test says so: for code that reads a clock, and for an event loop."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.waiting import let_run


class FakeClock:
    """`install(monkeypatch, module)` gives that module, and no other, this clock for `time`."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def install(self, monkeypatch: Any, module: Any) -> "FakeClock":
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=self, perf_counter=self))
        return self


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """A real event loop but for its clock. What `asyncio.timeout_at` and `call_later` wait for comes with `advance`, and
    what a callback raises, which a loop only logs, is raised by whoever settles it."""

    def __init__(self) -> None:
        self._fake_now = 1000.0
        self._raised: list[BaseException] = []
        super().__init__()
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._fake_now

    def settle(self) -> None:
        """Runs what is ready, and what that makes ready, and so on; no timer fires that is not due."""
        self.run_until_complete(let_run())
        if self._raised:
            raise self._raised.pop(0)

    def advance(self, seconds: float) -> None:
        self._fake_now += seconds
        self.settle()

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "handle" in context:  # of a callback
            self._raised.append(context["exception"])
        else:
            self.default_exception_handler(context)
