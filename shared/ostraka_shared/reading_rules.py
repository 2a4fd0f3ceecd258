"""What gateway and workers must agree on about how a request is read: the one predicts what the others do."""

LEAST_PREFIX_TOKENS = 32
"""A shorter prefix is neither kept nor read apart: its own call would cost more than reading it again."""

LEAST_SHARED_TOKENS = 8
"""From here on, prompts that begin alike are read together: a node of its own costs more than fewer tokens."""

LONG_PAST_TOKENS = 1024
"""Behind more than these, attention, which grows with the past, is most of a call's time."""

SIZE_FACTOR = 4
LARGEST_SIZE = 3
"""With batches of 256 tokens: what fits in one; up to 1,024, a page; up to 4,096, a chapter; beyond, a book up to the
context of 8,192, or many questions. One request of each size may be under way in a worker, and keeps its keys and
values meanwhile, 25 KB a token: more sizes would be more memory, fewer would have a page wait for a book."""


def size_of(tokens: int, batch_tokens: int) -> int:
    """0 for what fits in one call, else 1 to LARGEST_SIZE: each up to four times as large as the one before, the last
    without a bound. A worker reads requests of different sizes in turns, and those of one size beyond 0 one by one."""
    size, most = 0, batch_tokens
    while tokens > most and size < LARGEST_SIZE:
        size, most = size + 1, most * SIZE_FACTOR
    return size
