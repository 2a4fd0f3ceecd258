"""What a tuning is asked for."""

from dataclasses import dataclass
from pathlib import Path

from ostraka_shared.options import check_at_least

WORK_SUFFIX = ".tuning"


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """Raises ValueError naming the flag. None: see the flag's help."""

    data: tuple[str, ...]
    output: Path
    name: str
    precision: str
    cache_dir: Path
    source: Path | None
    adapter: str | None
    epochs: float | None
    minutes: float | None
    rank: int | None
    layers: int | None
    learning_rate: float
    seed: int
    threads: int
    resume: bool

    def __post_init__(self) -> None:
        check_at_least(1, self, "threads")
        check_at_least(0, self, "seed")
        for name in ("rank", "layers"):
            if getattr(self, name) is not None:
                check_at_least(1, self, name)
        for name in ("epochs", "minutes", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"--{name.replace('_', '-')} must be above 0, not {value}")

    @property
    def work(self) -> Path:
        """The log, the state to go on from, the adapter and the report: beside the model folder."""
        return self.output.with_name(self.output.name + WORK_SUFFIX)
