"""The settings of a gateway and of what gateways are forked from, given by their supervisor on the command line."""

from dataclasses import dataclass

from ostraka_gateway.http_config import HttpConfig
from ostraka_gateway.limits import DEADLINE_MS_MAX, Limits
from ostraka_shared.options import check_at_least, group, option, required

DEFAULT_DEADLINE_MS = 9000
"""The official SDKs give up after 10 s and then try again: an answer after that is work for nobody."""
DEFAULT_QUEUE_TOKENS = 200_000
"""A bound on memory; the predicted wait refuses long before."""


def check_deadline(deadline_ms: int) -> None:
    if deadline_ms > DEADLINE_MS_MAX:
        raise ValueError(f"--deadline-ms must be at most {DEADLINE_MS_MAX}, not {deadline_ms}")


@dataclass(frozen=True)
class RolloutConfig:
    control_fd: int | None = option(None, "a socket, inherited from the supervisor, for orders and reports")
    private_socket: str | None = option(None, "a path for a gateway of the generation before to send requests to")
    generation: int = option(1, "which set of processes it belongs to: each rollout starts another")
    standby: bool = option(False, "take no connections but those on the private socket, until ordered to")  # noqa: FBT003


@dataclass(frozen=True)
class ClusterConfig:
    cluster_id: str = option("local", "workers that name another cluster are refused")
    wanted_workers: int | None = option(None, "how many workers there should be, for /health to say")
    model_front: str | None = option(None, "where a copy of the model folder's small files is, if they are read there")


@dataclass(frozen=True)
class GatewayConfig:
    workers_at: str = required("the endpoint workers dial, ipc:// or tcp:// on loopback")
    model: str = required("the model folder; its weights are not read here")
    listen_fd: int = required("an open listening socket, inherited from the supervisor")
    figures_at: tuple[str, ...] = required("where each gateway tells its figures: paths with commas between")
    number: int = option(0, "which of these gateways it is, from 0")
    rollout: RolloutConfig = group(RolloutConfig)
    cluster: ClusterConfig = group(ClusterConfig)
    deadline_ms: int = option(DEFAULT_DEADLINE_MS, "how long a request may take, unless its x-deadline-ms differs")
    queue_tokens: int = option(DEFAULT_QUEUE_TOKENS, "most tokens waiting for a worker; more is refused with 529")
    answer_cache_bytes: int = option(0, "bytes of answers kept, so as not to work them out again; 0 keeps none")
    heartbeat_ms: int = option(500, "how long an idle worker may be silent")
    tokenizer_threads: int = option(2, "threads that turn text into tokens")
    grace_s: float = option(20.0, "how long a drain may take, in seconds")
    http: HttpConfig = group(HttpConfig)
    log_format: str = option("auto", "how log lines look", choices=("auto", "json", "text"))
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        check_at_least(1, self, "deadline_ms", "queue_tokens", "heartbeat_ms", "tokenizer_threads")
        check_deadline(self.deadline_ms)
        check_at_least(0, self, "grace_s", "answer_cache_bytes", "number")
        if self.number >= len(self.figures_at):
            raise ValueError(f"--figures-at must name a path for each gateway, also for number {self.number}")


@dataclass(frozen=True)
class GatewayZygoteConfig:
    """`generation` and `figures_at` are for those who look for its gateways: as forks, they have its command line."""

    model: str = required("the model folder; its weights are not read here")
    control_fd: int = required("the socket on which the supervisor asks for gateways")
    figures_at: tuple[str, ...] = required("where each gateway tells its figures: paths with commas between")
    generation: int = option(1, "which set of processes it belongs to: each rollout starts another")
    model_front: str | None = option(None, "where a copy of the model folder's small files is, if they are read there")
    name: str | None = option(None, "the name the model is served under; by default its own")
    limits: Limits = group(Limits)
    log_format: str = option("auto", "how log lines look", choices=("auto", "json", "text"))
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))
