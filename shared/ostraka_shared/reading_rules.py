"""What gateway and workers must agree on about how a request is read: the one predicts what the others do."""

LEAST_PREFIX_TOKENS = 32
"""A shorter prefix is neither kept nor read apart: its own call would cost more than reading it again."""

LEAST_SHARED_TOKENS = 8
"""From here on, prompts that begin alike are read together: a node of its own costs more than fewer tokens."""

LONG_PAST_TOKENS = 1024
"""Behind more than these, attention, which grows with the past, is most of a call's time."""
