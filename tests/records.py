"""One message of each kind, as `tests/contract` has frozen it, and hypothesis's idea of all others."""

from dataclasses import fields
from typing import Any, get_type_hints

from hypothesis import strategies as st

from ostraka_shared import codec
from ostraka_shared.messages import (
    Beat,
    Bye,
    Cancel,
    Drain,
    Failed,
    Hello,
    Message,
    Ready,
    Refused,
    Result,
    Started,
    Welcome,
    Work,
)

GOLDEN: dict[str, Message] = {
    "hello": Hello(
        cluster_id="5f2c1a9be0d47733",
        worker_id="w3",
        incarnation=7,
        fingerprint="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        host="0b3c2f6e-7d5a-4b2e-9a61-2d8f3c1e5b70/pid:[4026531836]",
        pid=70_123,
        cores=(2, 3, 130),
    ),
    "welcome": Welcome(heartbeat_ms=500),
    "refused": Refused(code="wrong_cluster", message="this gateway serves cluster 'θόλος'"),
    "ready": Ready(engine="onnxruntime 1.31.1", credit_tokens=512, tokens_per_s=1250.0),
    "work": Work(
        request_id="req_0123456789abcdef01234567",
        attempt=2,
        deadline_ms=8_750,
        prefix=bytes.fromhex("01000000 d2040000 ffff0000"),
        suffixes=(bytes.fromhex("05000000"), bytes.fromhex("06000000 ffffffff")),
        state_tokens=2,
    ),
    "work_without_prefix": Work("req_0", 1, 1, b"", (b"\x01\x00\x00\x00",)),
    "started": Started(request_ids=("req_0123456789abcdef01234567", "req_1"), tokens=256, others_tokens=40),
    "result": Result("req_0123456789abcdef01234567", 2, (0.0, 0.1, 0.5, 1.0, 5e-324), 12.25, 230.5),
    "failed": Failed("req_1", 1, "engine_failed", "the model call failed (RuntimeError)"),
    "cancel": Cancel("req_0123456789abcdef01234567", 2),
    "beat": Beat(
        queued_requests=1,
        queued_tokens=200,
        batches_done=70_000,
        batched_requests=128,
        dropped_frames=0,
        rss_bytes=5_000_000_000,
        snapshots_kept=10,
        snapshots_max=16,
        snapshots_tokens=6_159,
        snapshots_max_tokens=8_192,
        snapshots_hits=300,
        snapshots_misses=12,
        snapshots_reused_tokens=150_000,
        snapshots_bytes=283_807_744,
        credit_tokens=256,
        free_share=0.75,
    ),
    "drain": Drain(),
    "bye": Bye(reason="drained"),
}

_TOKENS = st.integers(0, 5).flatmap(lambda n: st.binary(min_size=4 * n, max_size=4 * n))
_TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
_COUNT = st.integers(0, 2**63 - 1)
_OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: _COUNT,
    float: st.floats(0.0, 1e12, exclude_max=True, allow_nan=False),
    str: _TEXT,
    bytes: _TOKENS,
    tuple[int, ...]: st.lists(_COUNT, max_size=5).map(tuple),
    tuple[float, ...]: st.lists(st.floats(0.0, 1.0), max_size=5).map(tuple),
    tuple[str, ...]: st.lists(_TEXT, max_size=5).map(tuple),
    tuple[bytes, ...]: st.lists(_TOKENS.filter(len), max_size=5).map(tuple),
}


def any_message() -> st.SearchStrategy[Message]:
    kinds = list(codec._KINDS.values())
    return st.one_of(
        st.builds(kind, **{f.name: _OF_TYPE[get_type_hints(kind)[f.name]] for f in fields(kind)}) for kind in kinds
    )
