"""Where a decision's time went, for its Server-Timing header and the stage histograms."""

import time

DECIMALS = {"parse": 2, "validate": 2, "tokenize": 2, "queue": 2, "inference": 1, "respond": 2, "total": 1}
"""jev's segments, in its order and with its precision."""


class Timeline:
    """Stages follow one another; each `mark` ends one."""

    def __init__(self) -> None:
        self._begun = self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def restart(self) -> None:
        self._begun = self._last = time.perf_counter()

    def mark(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now

    def mark_asked(self, queue_ms: float, inference_ms: float) -> None:
        """The time since the last mark, as the reply splits it."""
        self._last = time.perf_counter()
        self.seconds["queue"] = queue_ms / 1000
        self.seconds["inference"] = inference_ms / 1000

    def finish(self) -> str:
        """Ends the total; returns the Server-Timing header's value, in milliseconds."""
        self.seconds["total"] = time.perf_counter() - self._begun
        return ", ".join(
            f"{stage};dur={self.seconds.get(stage, 0.0) * 1000:.{decimals}f}" for stage, decimals in DECIMALS.items()
        )
