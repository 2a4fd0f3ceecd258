"""The most a request may hold, all of it checked before a text is tokenized; docs/limits.md is the table."""

from dataclasses import dataclass, fields

from ostraka_shared.codec import MAX_FRAME_BYTES, MAX_ITEMS
from ostraka_shared.messages import TOKEN_BYTES
from ostraka_shared.options import check_at_least, option

REQUEST_CHARS_MAX = MAX_FRAME_BYTES // TOKEN_BYTES
"""Beyond a token a character the wire's frame could not hold the prompts."""

DEADLINE_MS_MAX = 600_000
"""Ten minutes; nobody waits longer for an answer."""


@dataclass(frozen=True)
class Limits:
    # feder-cr/jev's, counted as it does: the state written as JSON with `, ` and `: `, in UTF-8.
    state_bytes: int = option(256_000, "most bytes of a state, written as JSON")
    # feder-cr/jev's.
    text_chars: int = option(8000, "most characters of one instruction, option or level")
    # feder-cr/jev's; the hosted API documents none.
    request_questions: int = option(1024, "most questions of a request")
    # The hosted API's; it refuses 256.
    choice_options: int = option(255, "most options of a choice")
    # The hosted API's; it refuses 11.
    score_levels: int = option(10, "most levels of a score")
    # feder-cr/jev's limits allow 26,624: 1,024 choices of 26 options.
    request_prompts: int = option(32_768, "most prompts of a request: one a noul or option, one a level but the lowest")
    # About a million tokens, more than sixty workers read before a deadline. A body of two megabytes could ask for
    # 255 times as much: each option of a choice is a prompt that lists them all.
    request_chars: int = option(4_000_000, "most characters of a request's prompts together, its state counted once")

    def __post_init__(self) -> None:
        check_at_least(1, self, *(each.name for each in fields(self)))
        if self.request_prompts > MAX_ITEMS:
            raise ValueError(f"--request-prompts must be at most {MAX_ITEMS}, not {self.request_prompts}")
        if self.request_chars > REQUEST_CHARS_MAX:
            raise ValueError(f"--request-chars must be at most {REQUEST_CHARS_MAX}, not {self.request_chars}")


DEFAULT_LIMITS = Limits()
