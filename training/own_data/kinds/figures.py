"""Sums, prices, dates and opening hours: what has to be compared, added or looked up in a calendar."""

from collections.abc import Iterator
from datetime import date, timedelta
from random import Random

from training.own_data.fragments import Fragments, fill
from training.own_data.scenario import Choice, Pair, Scenario
from training.own_data.slots import draw

_FORMATS = (
    "{d} {month}",
    "{month} {d}",
    "{d} {month} {y}",
    "{y}-{m:02}-{d:02}",
    "{d:02}.{m:02}.{y}",
    "{month} {d}, {y}",
)


def amounts(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end."""
    makers = (_over, _over, _sum_over, _settled, _cheaper)
    while True:
        slots = draw(rng, heldout=heldout) | {"cur": rng.choice(("EUR", "euros", "dollars", "USD", "pounds"))}
        slots["rival"] = rng.choice(
            [one for one in Fragments("slots", heldout=False).lines("company") if one != slots["company"]]
        )
        yield rng.choice(makers)(fragments, slots, rng)


def dates(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end."""
    makers = (_overdue, _overdue, _after, _open, _earlier)
    while True:
        yield rng.choice(makers)(fragments, draw(rng, heldout=heldout), rng)


def _over(fragments: Fragments, slots: dict[str, str], rng: Random) -> Scenario:
    limit = _round(rng)
    text = rng.choice(fragments.lines("single"))
    high, low = limit + rng.randint(limit // 20 + 1, limit), limit - rng.randint(limit // 20 + 1, limit // 2)
    told = slots | {"limit": _money(limit, rng)}
    first, second = (_invoice(text, amount, told, rng) for amount in (high, low))
    return Scenario((first, second), {"over": (True, False)}, told)


def _sum_over(fragments: Fragments, slots: dict[str, str], rng: Random) -> Scenario:
    """Each position alone is below the limit."""
    limit = _round(rng)
    one, two = rng.sample(fragments.lines("thing"), 2)
    first = rng.randint(limit * 4 // 10, limit * 8 // 10)
    margin = limit // 12 + 1
    seconds = (
        limit - first + rng.randint(margin, first - margin),
        limit - first - rng.randint(margin, limit - first - 1),
    )
    told = slots | {"limit": _money(limit, rng), "one": one, "two": two, "first": _money(first, rng)}
    text = rng.choice(fragments.lines("sum"))
    if rng.random() < 0.35:
        records = [
            {"currency": slots["cur"], "items": [{"item": one, "price": first}, {"item": two, "price": second}]}
            for second in seconds
        ]
        return Scenario((records[0], records[1]), {"over": (True, False)}, told)
    texts = [fill(text, told | {"second": _money(second, rng)}) for second in seconds]
    return Scenario((texts[0], texts[1]), {"over": (True, False)}, told)


def _settled(fragments: Fragments, slots: dict[str, str], rng: Random) -> Scenario:
    amount = rng.randint(40, 4000)
    short = amount - rng.randint(1, max(2, amount // 2))
    text = rng.choice(fragments.lines("paid"))
    told = slots | {"amount": _money(amount, rng)}
    if rng.random() < 0.3:
        records = [{"invoice": slots["order"], "amount": amount, "paid": paid} for paid in (amount, short)]
        return Scenario((records[0], records[1]), {"settled": (True, False)}, told)
    first, second = (
        fill(text, told | {"paid": told["amount"] if paid == amount else _money(paid, rng)}) for paid in (amount, short)
    )
    return Scenario((first, second), {"settled": (True, False)}, told)


def _cheaper(fragments: Fragments, slots: dict[str, str], rng: Random) -> Scenario:
    low = rng.randint(50, 3000)
    prices = (_money(low, rng), _money(low + rng.randint(low // 20 + 1, low), rng))
    text = rng.choice(fragments.lines("offers"))
    first, second = (fill(text, slots | {"left": left, "right": right}) for left, right in (prices, prices[::-1]))
    names = [slots["company"], slots["rival"]]
    choices = (Choice(rng.choice(fragments.words("choice")), names, (0, 1)),) if rng.random() < 0.5 else ()
    return Scenario((first, second), {"cheaper": (True, False)}, slots, choices)


def _overdue(fragments: Fragments, slots: dict[str, str], rng: Random) -> Scenario:
    day, style = _day(rng), rng.choice(_FORMATS)
    told = slots | {"day": _write(day, rng.choice((style, rng.choice(_FORMATS))))}
    dues = (day - timedelta(rng.randint(1, 60)), day + timedelta(rng.randint(1, 60)))
    return Scenario(_dated(fragments, "due", dues, style, told, rng), {"overdue": (True, False)}, told)


def _after(fragments: Fragments, slots: dict[str, str], rng: Random) -> Scenario:
    day, style = _day(rng), rng.choice(_FORMATS)
    told = slots | {"day": _write(day, rng.choice((style, rng.choice(_FORMATS))))}
    when = (day + timedelta(rng.randint(1, 90)), day - timedelta(rng.randint(1, 90)))
    return Scenario(_dated(fragments, "event", when, style, told, rng), {"after": (True, False)}, told)


def _open(fragments: Fragments, slots: dict[str, str], rng: Random) -> Scenario:
    """The same hour asked of two opening times."""
    hour = rng.randint(9, 18)
    told = slots | {"time": f"{hour}:{rng.choice(('10', '20', '40', '50'))}"}
    wide = (rng.randint(6, hour), rng.randint(hour + 1, 22))
    narrow = rng.choice(((rng.randint(hour + 1, hour + 3), 23), (5, rng.randint(hour - 3, hour))))
    text = rng.choice(fragments.lines("hours"))
    first, second = (fill(text, told | {"from": f"{begin}:00", "to": f"{end}:00"}) for begin, end in (wide, narrow))
    return Scenario((first, second), {"open": (True, False)}, told)


def _earlier(fragments: Fragments, slots: dict[str, str], rng: Random) -> Scenario:
    """Only a choice: its options are the two occasions."""
    left, right = rng.sample(fragments.lines("occasion"), 2)
    style, day = rng.choice(_FORMATS), _day(rng)
    later = day + timedelta(rng.randint(1, 80))
    text = rng.choice(fragments.lines("two"))
    written = (_write(day, style), _write(later, style))
    first, second = (
        fill(text, slots | {"left": left, "right": right, "first": one, "second": two})
        for one, two in (written, written[::-1])
    )
    return Scenario((first, second), choices=(Choice(rng.choice(fragments.words("choice")), [left, right], (0, 1)),))


def _dated(
    fragments: Fragments, section: str, days: tuple[date, date], style: str, slots: dict[str, str], rng: Random
) -> Pair:
    text = rng.choice(fragments.lines(section))
    if rng.random() < 0.2:
        key = "due_date" if section == "due" else "date"
        return {"id": slots["order"], key: days[0].isoformat()}, {"id": slots["order"], key: days[1].isoformat()}
    first, second = (fill(text, slots | {"date": _write(day, style)}) for day in days)
    return first, second


def _day(rng: Random) -> date:
    """Within one year's middle, so that a date without a year is in the same year as the other."""
    return date(rng.choice((2025, 2026, 2027)), 4, 10) + timedelta(rng.randint(0, 170))


def _write(day: date, style: str) -> str:
    return style.format(d=day.day, m=day.month, y=day.year, month=f"{day:%B}")


def _invoice(text: str, amount: int, slots: dict[str, str], rng: Random) -> str | dict[str, object]:
    if rng.random() < 0.2:
        return {"invoice": slots["order"], "customer": slots["name"], "total": amount, "currency": slots["cur"]}
    return fill(text, slots | {"amount": _money(amount, rng)})


def _round(rng: Random) -> int:
    return rng.choice((50, 80, 100, 150, 200, 250, 300, 400, 500, 600, 750, 1000, 1500, 2000, 5000))


def _money(value: int, rng: Random) -> str:
    return f"{value:,}" if value >= 1000 and rng.random() < 0.7 else str(value)
