"""The wire's vocabulary: every message between a gateway and a worker, as a frozen record. `codec` makes them bytes.

    worker                                gateway
      HELLO ──────────────────────────────►  who I am; checked against cluster and model
      ◄────────────────────────── WELCOME    you are known           (or REFUSED, with the reason)
      READY ──────────────────────────────►  loaded and warm; how many tokens I may hold
      ◄───────────────────────────── WORK    one request's prompts
      STARTED ────────────────────────────►  these requests are in the model call that begins now
      RESULT | FAILED ────────────────────►  one request's answers, or why there are none
      ◄─────────────────────────── CANCEL    nobody waits for it: FAILED at once, unless its last call runs already
      BEAT ───────────────────────────────►  sent by the inference loop itself: proof that it moves
      ◄──────────────── DRAIN ────────────►  finish what you hold, take nothing new (either side may say it)
      BYE ────────────────────────────────►  nothing of yours is left with me

A sent message proves nothing; only RESULT does. Every frame carries the protocol's version: one of another version is
dropped, counted and logged on either side. So whatever changes a message raises PROTOCOL_VERSION. A worker of another
version is told so in its own, by the one message that has never changed and never may: REFUSED.
"""

from dataclasses import dataclass

PROTOCOL_VERSION = 3

TOKEN_BYTES = 4
"""Token ids travel as little-endian uint32."""


@dataclass(frozen=True, slots=True)
class Hello:
    """`incarnation` rises with every restart of the same worker id. `host` names a kernel and PID namespace: a gateway
    with the same one may watch `pid` directly. `cores` is the core set the worker is pinned to."""

    cluster_id: str
    worker_id: str
    incarnation: int
    fingerprint: str
    host: str
    pid: int
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Welcome:
    """`heartbeat_ms`: how long the inference loop may be silent while it has nothing to run."""

    heartbeat_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """`code`: "unknown_worker" asks for a new HELLO (the gateway restarted); any other is final. Of all versions."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Ready:
    """`credit_tokens`: the most tokens the worker wants to hold, running and waiting: about two batches.
    `tokens_per_s`: its speed, measured while it warmed up: by it the gateway judges how long silence may last."""

    engine: str
    credit_tokens: int
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Work:
    """One request. Prompt i is `prefix` + `suffixes[i]`; no suffix is empty. `deadline_ms` is the time left at sending,
    since clocks differ between machines. `state_tokens` of the prefix are the state's: worth keeping."""

    request_id: str
    attempt: int
    deadline_ms: int
    prefix: bytes
    suffixes: tuple[bytes, ...]
    state_tokens: int = 0

    @property
    def tokens(self) -> int:
        return count_tokens(self.prefix, self.suffixes)


def count_tokens(prefix: bytes, suffixes: tuple[bytes, ...]) -> int:
    """What the model reads for a request: the prefix once. No credit for what is kept, or what suffixes share."""
    return (len(prefix) + sum(map(len, suffixes))) // TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Started:
    """Sent before each model call. `tokens` is the call's size, from which its duration can be judged.

    A worker of several gateways tells each of every call, with that gateway's requests only: all wait for it. After a
    call that no other follows it says so too, with no tokens. `others_tokens`: what it holds for the other gateways.
    """

    request_ids: tuple[str, ...]
    tokens: int
    others_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """P(yes) of each prompt, in order. `queue_ms`: from receipt to the start of its first call; `inference_ms`: all the
    model calls of its batch."""

    request_id: str
    attempt: int
    p_yes: tuple[float, ...]
    queue_ms: float
    inference_ms: float


@dataclass(frozen=True, slots=True)
class Failed:
    """`code` is that of an error in `errors`."""

    request_id: str
    attempt: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """That attempt is still answered, so that the gateway knows when there is room: FAILED with the code "cancelled",
    or the RESULT that was on its way."""

    request_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Beat:
    """`batched_requests`: how many requests shared a batch with another. `dropped_frames`: undecodable ones.

    `snapshots_*`: the prefix cache: states kept, the most there may be, their tokens and the most of those, requests
    that found a state and that did not, the tokens they did not have to read, and what it all takes.

    `credit_tokens`: as in READY, as it is now; 0 leaves it. `free_share`: of the worker's time, what the other gateways
    leave to this one.
    """

    queued_requests: int
    queued_tokens: int
    batches_done: int
    batched_requests: int
    dropped_frames: int
    rss_bytes: int
    snapshots_kept: int = 0
    snapshots_max: int = 0
    snapshots_tokens: int = 0
    snapshots_max_tokens: int = 0
    snapshots_hits: int = 0
    snapshots_misses: int = 0
    snapshots_reused_tokens: int = 0
    snapshots_bytes: int = 0
    credit_tokens: int = 0
    free_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Drain:
    pass


@dataclass(frozen=True, slots=True)
class Bye:
    reason: str


Message = Hello | Welcome | Refused | Ready | Work | Started | Result | Failed | Cancel | Beat | Drain | Bye
