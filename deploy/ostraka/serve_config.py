"""The settings of `ostraka serve`."""

from dataclasses import dataclass

from ostraka_gateway.config import DEFAULT_DEADLINE_MS, DEFAULT_QUEUE_TOKENS, check_deadline
from ostraka_gateway.http_config import HttpConfig
from ostraka_shared.options import check_at_least, group, option
from ostraka_worker.build.catalog import DEFAULT_PRECISION, PRECISIONS
from ostraka_worker.config import DEFAULT_BATCH_TOKENS, DEFAULT_IDLE_CALL_S, StateCacheConfig


@dataclass(frozen=True)
class ProcessesConfig:
    gateways: int = option(1, "gateway processes on the port: more answer more requests a second of small models")
    workers: int | None = option(None, "worker processes; by default one for each core that may be used")
    cores_per_worker: int = option(
        1, "cores of each worker: more answer one request sooner, but fewer in all; int8 with AMX uses one"
    )
    worker_start: str = option(
        "fork",
        "fork: workers share the memory of one loaded model, if each has one core; load: each loads its own",
        choices=("fork", "load"),
    )
    idle_call_s: float = option(
        DEFAULT_IDLE_CALL_S, "seconds without work before a short call keeps the model in the CPU's caches; 0: never"
    )
    max_worker_rss_mb: int = option(0, "resident megabytes from which a worker is replaced by a new one; 0: never")

    def __post_init__(self) -> None:
        check_at_least(1, self, "gateways")
        check_at_least(0, self, "idle_call_s", "max_worker_rss_mb")


@dataclass(frozen=True)
class StopConfig:
    grace_s: float = option(25.0, "how long a drain may take before what is left is killed, in seconds")
    not_ready_s: float = option(
        5.0, "after SIGTERM, how long all is answered as before while /readyz says 503, before the drain; in seconds"
    )

    def __post_init__(self) -> None:
        check_at_least(0, self, "grace_s", "not_ready_s")


@dataclass(frozen=True)
class ServeConfig:
    host: str = option("127.0.0.1", "address to listen on")
    port: int = option(8017, "port to listen on; 0 takes a free one")
    processes: ProcessesConfig = group(ProcessesConfig)
    model: str | None = option(None, "a model folder; by default the embedded model, built when it is missing")
    precision: str | None = option(
        None,
        f"the embedded model's arithmetic, by default {DEFAULT_PRECISION}; a --model must have it where it is given",
        choices=PRECISIONS,
    )
    cache_dir: str = option("~/.cache/ostraka", "where downloads and built models are kept")
    batch_tokens: int = option(DEFAULT_BATCH_TOKENS, "most tokens a worker reads together in one batch")
    cache: StateCacheConfig = group(StateCacheConfig)
    queue_tokens: int = option(DEFAULT_QUEUE_TOKENS, "most tokens waiting for a worker; more is refused with 529")
    answer_cache_bytes: int = option(0, "bytes of answers kept, so as not to work them out again; 0 keeps none")
    deadline_ms: int = option(DEFAULT_DEADLINE_MS, "how long a request may take, unless its x-deadline-ms differs")
    stop: StopConfig = group(StopConfig)
    http: HttpConfig = group(HttpConfig)
    run_dir: str | None = option(None, "folder for the server's sockets and notes, mode 0700; by default a fresh one")
    log_format: str = option("auto", "how log lines look; auto: text on a terminal", choices=("auto", "json", "text"))
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        if not self.host:
            raise ValueError("--host is empty: 127.0.0.1 is this machine alone, 0.0.0.0 every address it has")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"--port must be from 0 to 65535, not {self.port}")
        # Said now, and not by a child after the model was built.
        check_at_least(1, self, "batch_tokens", "queue_tokens", "deadline_ms")
        check_deadline(self.deadline_ms)
        check_at_least(0, self, "answer_cache_bytes")
