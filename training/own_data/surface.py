"""How a text reaches a model: bare, under a heading, in a JSON object, in a hurry. Both states of a scenario alike."""

import re
from random import Random

from training.own_data.scenario import Pair, State

_HEADINGS = (
    "Ticket: ",
    "Message: ",
    "[Message]\n",
    "Customer: ",
    "From the inbox:\n\n",
    "Text:\n",
    "E-mail\n-----\n",
    "> ",
)
_WRAPS = (
    ("message",), ("text",), ("subject", "body"), ("channel", "content"), ("from", "message"), ("id", "body"),
)  # fmt: skip
_SUBJECTS = ("Question", "Hello", "Your service", "Request", "Re: your mail", "(no subject)", "Follow-up", "Note")
_LEAD_INS = ("Answer yes or no: ", "Based on the text: ", "Yes or no? ", "Question: ", "Decide: ", "Given the above, ")


def surround(states: Pair, background: list[str], rng: Random) -> Pair:
    """Texts among sentences that matter to nothing: a model has to find what it is asked about."""
    chosen = rng.sample(background, min(len(background), rng.randint(3, 14)))
    place = rng.randint(0, len(chosen))
    first, second = (
        " ".join([*chosen[:place], state, *chosen[place:]]) if isinstance(state, str) else state for state in states
    )
    return first, second


def dress(states: Pair, rng: Random) -> Pair:
    seed = rng.random()
    first, second = (_dress(state, Random(seed)) for state in states)
    return first, second


def dress_question(question: str, rng: Random) -> str:
    roll = rng.random()
    if roll < 0.05:
        return rng.choice(_LEAD_INS) + question
    if roll < 0.09:
        return question.lower()
    if roll < 0.12:
        return question.rstrip("?.")
    return question


def _dress(state: State, rng: Random) -> State:
    if not isinstance(state, str):
        return state
    roll = rng.random()
    if roll < 0.55:
        return state
    if roll < 0.70:
        return rng.choice(_HEADINGS) + state
    if roll < 0.82:
        return _wrap(state, rng)
    if roll < 0.91:
        return _hurry(state, rng)
    return _typos(state, rng)


def _wrap(text: str, rng: Random) -> State:
    keys = rng.choice(_WRAPS)
    before = {
        "subject": rng.choice(_SUBJECTS), "channel": rng.choice(("email", "chat", "web form", "phone note")),
        "from": rng.choice(("customer", "user", "contact form", "guest")), "id": rng.randrange(100, 99999),
    }  # fmt: skip
    return {key: before.get(key, text) for key in keys}


def _hurry(text: str, rng: Random) -> str:
    text = text.lower()
    return re.sub(r"[.!]$", "", text) if rng.random() < 0.6 else text.replace("'", "")


def _typos(text: str, rng: Random) -> str:
    """Two letters change places in about one long plain word of eight."""

    def swap(found: re.Match[str]) -> str:
        word = found[0]
        if rng.random() > 0.12:
            return word
        place = rng.randrange(1, len(word) - 2)
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]

    return re.sub(r"(?<![\w@.])[a-z]{6,}(?![\w@])", swap, text)
