"""WORK as tests make it, and the answers the fake engine must give to it."""

import numpy as np

from ostraka_shared.messages import Work
from ostraka_worker.fake_engine import fake_logits
from ostraka_worker.scoring import p_yes


def ids(tokens):
    return np.array(tokens, "<u4").tobytes()


def make_work(prefix, suffixes, name="r", state=0):
    return Work(name, 1, 1000, ids(prefix), tuple(map(ids, suffixes)), state)


def whole_prompts(work):
    return [np.frombuffer(work.prefix + suffix, "<u4") for suffix in work.suffixes]


def expected(work):
    """Each prompt read whole and alone."""
    return tuple(p_yes(np.stack([fake_logits(tokens) for tokens in whole_prompts(work)])))
