"""The settings of a worker and of a zygote, given by their supervisor on the command line."""

from dataclasses import dataclass

from ostraka_shared.options import check_at_least, group, option, required

DEFAULT_BATCH_TOKENS = 256
"""Tokens a second by budget, int8, one core, 32-token requests: none 960, 64 1164, 128 1303, 256 1398, 384 1319,
512 1255, 1024 1159. Half the budget keeps 93 % and halves the time of a call."""

DEFAULT_IDLE_CALL_S = 1.0
"""After 12 s of rest, a request takes 47.5 ms more than right after another; with these calls, 8.2 (int8)."""


@dataclass(frozen=True)
class StateCacheConfig:
    """Full, the embedded model's takes 201 MB: 25 KB a token, at most."""

    state_cache: int = option(16, "most states a worker keeps, so as not to read them again; 0 keeps none")
    state_cache_tokens: int = option(8192, "most tokens of all states a worker keeps; 0 keeps none")

    def __post_init__(self) -> None:
        check_at_least(0, self, "state_cache", "state_cache_tokens")


@dataclass(frozen=True)
class WorkerConfig:
    gateway: tuple[str, ...] = required("each gateway's worker endpoint, ipc:// or tcp://, with commas between")
    model: str = required("the model folder")
    worker_id: str = required("this worker's name, the same after a restart")
    seal: str | None = option(None, "how the model's files were when the supervisor hashed them, not to do so again")
    cluster_id: str = option("local", "both sides must name the same cluster")
    incarnation: int = option(1, "how many times this worker has been started")
    cores: tuple[int, ...] = option((), "the cores to run on, as 0,1 (none: wherever the system puts it)")
    threads: int | None = option(None, "threads of a model call; by default one for each of its cores")
    batch_tokens: int = option(DEFAULT_BATCH_TOKENS, "most tokens read together in one batch")
    cache: StateCacheConfig = group(StateCacheConfig)
    idle_call_s: float = option(
        DEFAULT_IDLE_CALL_S, "seconds without work before a short call keeps the model in the CPU's caches; 0: never"
    )
    log_format: str = option("auto", "how log lines look", choices=("auto", "json", "text"))
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        if not self.gateway:
            raise ValueError("--gateway must name an endpoint")
        check_at_least(1, self, "batch_tokens", "incarnation")
        check_at_least(0, self, "idle_call_s")
        if self.threads is not None:
            check_at_least(1, self, "threads")

    @property
    def credit_tokens(self) -> int:
        """The running batch and one more, so that the model never waits for the gateway's round trip."""
        return 2 * self.batch_tokens


@dataclass(frozen=True)
class ZygoteConfig:
    model: str = required("the model folder")
    control_fd: int = required("the socket on which the supervisor asks for workers")
    seal: str | None = option(None, "how the model's files were when the supervisor hashed them, not to do so again")
    cores: tuple[int, ...] = option((), "the cores to load on, near the workers' memory (none: wherever)")
    log_format: str = option("auto", "how log lines look", choices=("auto", "json", "text"))
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))
