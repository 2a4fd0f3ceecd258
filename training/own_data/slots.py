"""Names, towns and numbers that make one fragment into many."""

from random import Random

from training.own_data.fragments import Fragments

_MONTHS = ("March", "May", "July", "October")


def draw(rng: Random, *, heldout: bool) -> dict[str, str]:
    file = Fragments("slots", heldout=heldout)
    slots = {name: rng.choice(file.lines(name)) for name in file.sections() if name != "background"}
    return slots | {
        "order": rng.choice((f"{rng.randrange(10000, 999999)}", f"A-{rng.randrange(1000, 9999)}")),
        "digits": str(rng.randrange(10, 99)),
        "number": str(rng.randrange(1, 140)),
        "phone": rng.choice(("+44 20 7946 0", "030 5550 1", "(555) 010-7", "+33 1 99 00 1"))
        + str(rng.randrange(100, 999)),
        "iban": f"DE{rng.randrange(10, 99)} 5001 0517 {rng.randrange(1000, 9999)} {rng.randrange(1000, 9999)} 31",
        "card": f"4929 {rng.randrange(1000, 9999)} {rng.randrange(1000, 9999)} {rng.randrange(1000, 9999)}",
        "birth": f"{rng.randrange(1, 28)} {rng.choice(_MONTHS)} {rng.randrange(1948, 2006)}",
        "passport": rng.choice("CKLX") + str(rng.randrange(10_000_000, 99_999_999)),
    }
