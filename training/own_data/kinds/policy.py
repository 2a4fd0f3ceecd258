"""A written policy and a case: refunds and spending limits. The label is what the policy says, computed."""

from collections.abc import Iterator
from random import Random

from training.own_data.fragments import Fragments, fill
from training.own_data.scenario import Choice, Pair, Scenario
from training.own_data.slots import draw

_REFUND_ACTIONS = (
    ["approve the refund", "refuse the refund", "ask for the delivery date"],
    ["approve", "deny", "need more information"],
    ["pay back", "turn down", "ask the customer when it came"],
)
_APPROVERS = ("team lead", "department head", "CFO")


def refund(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end. The first case meets every condition; the second fails one, or leaves open when it was delivered."""
    while True:
        slots = draw(rng, heldout=heldout)
        window = rng.choice((7, 10, 14, 21, 30, 45, 60))
        text, conditions = (part.strip() for part in rng.choice(fragments.lines("policy")).split("|"))
        policy = fill(text, slots | {"window": str(window)})
        failed = rng.choice(conditions.split())
        is_open = "date" in conditions and rng.random() < 0.25
        early, late = rng.randint(1, window - 1), rng.randint(window + 2, window * 3)
        words = {name: rng.choice(fragments.lines(name)) for name in ("when", "want", "unused", "used", "item allowed")}
        good = [words["want"], words["when"], words["unused"]]
        bad, item, days = list(good), words["item allowed"], early
        if is_open:
            bad.remove(words["when"])
        elif failed == "date":
            days = late
        elif failed == "unused":
            bad[2] = words["used"]
        else:
            item = rng.choice(fragments.lines("item excluded"))
        order = rng.sample(range(3), 3)
        told = slots | {"item": words["item allowed"], "days": str(early)}
        first = fill(_arrange(good, order), told)
        second = fill(_arrange(bad, order), told | {"item": item, "days": str(days)})
        claims = {"date_known": (True, False)} if is_open else {"eligible": (True, False)}
        names = list(rng.choice(_REFUND_ACTIONS))
        wanted = is_open or rng.random() < 0.4
        choices = (Choice(rng.choice(fragments.words("choice")), names, (0, 2 if is_open else 1)),) if wanted else ()
        yield Scenario(_beside("policy", policy, "request", (first, second), rng), claims, told, choices)


def approval(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end. Two amounts in two bands of the limits."""
    while True:
        slots = draw(rng, heldout=heldout)
        low = rng.choice((100, 200, 250, 300, 500, 800, 1000))
        mid = low * rng.choice((3, 4, 5, 8, 10))
        told = slots | {
            "low": _number(low, rng), "mid": _number(mid, rng), "cur": rng.choice(("EUR", "USD", "GBP", "CHF")),
            "what": rng.choice(fragments.lines("what")),
        }  # fmt: skip
        bands = ((low // 4, low), (low + 1, mid), (mid + 1, mid * 3))
        pair = rng.sample(range(3), 2)
        policy = fill(rng.choice(fragments.lines("policy")), told)
        request = rng.choice(fragments.lines("request"))
        first, second = (fill(request, told | {"amount": _number(rng.randint(*bands[band]), rng)}) for band in pair)
        claims = {
            "lead_enough": (pair[0] == 0, pair[1] == 0),
            "cfo_needed": (pair[0] == 2, pair[1] == 2),
            "head_enough": (pair[0] <= 1, pair[1] <= 1),
        }
        choices: tuple[Choice, ...] = ()
        if rng.random() < 0.5:
            choices = (Choice(rng.choice(fragments.words("choice")), list(_APPROVERS), (pair[0], pair[1])),)
        yield Scenario(_beside("policy", policy, "request", (first, second), rng), claims, told, choices)


def _arrange(sentences: list[str], order: list[int]) -> str:
    return " ".join(sentences[place] for place in order if place < len(sentences))


def _beside(name: str, policy: str, key: str, cases: Pair, rng: Random) -> Pair:
    roll = rng.random()
    heading = rng.choice(("", "", "Policy: ", "Our rules.\n", "# Policy\n"))
    link = rng.choice(("\n\n", "\nCase: ", "\n\nCustomer: " if key == "customer" else "\n\nRequest: ", " --- "))
    first, second = ({name: policy, key: case} if roll < 0.3 else f"{heading}{policy}{link}{case}" for case in cases)
    return first, second


def _number(value: int, rng: Random) -> str:
    return f"{value:,}" if value >= 1000 and rng.random() < 0.6 else str(value)
