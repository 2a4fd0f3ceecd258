"""JSON states: tool calls under a policy, and records whose fields are asked about."""

import json
from collections.abc import Callable, Iterator
from random import Random

from training.own_data.fragments import Fragments, fill
from training.own_data.scenario import Choice, Pair, Scenario
from training.own_data.slots import draw

Record = dict[str, object]


def tools(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end. One rule decides; the others are about other tools."""
    rules = [line.split(" ## ") for section in ("rule", "confirm") for line in fragments.lines(section)]
    confirmed = {line.split(" ## ")[0] for line in fragments.all_lines("confirm")}
    while True:
        slots = draw(rng, heldout=heldout)
        rule, tool, *arguments = rng.choice(rules)
        others = [other[0] for other in rules if other[1] != tool]
        policy = [fill(one, slots) for one in [rule, *rng.sample(others, rng.randint(0, min(3, len(others))))]]
        rng.shuffle(policy)
        calls = [json.loads(fill(one, slots)) for one in arguments]
        is_confirm = rule in confirmed
        claims = {"allowed": (True, False)} | ({"needs_user": (False, True)} if is_confirm else {})
        verdicts = rng.choice(fragments.words("verdict confirm" if is_confirm else "verdict")).split(" | ")
        choices = (Choice(rng.choice(fragments.words("choice")), verdicts, (0, 1)),) if rng.random() < 0.4 else ()
        yield Scenario(_gate(policy, tool, calls, rng), claims, slots, choices)


def records(fragments: Fragments, rng: Random, *, heldout: bool) -> Iterator[Scenario]:
    """Without end. Two records that differ in one field."""
    while True:
        schema = rng.choice(_schemas(fragments, heldout))
        fields = [[part.strip() for part in line.split("|")] for line in fragments.all_lines(f"schema {schema}")]
        record: dict[str, object] = {}
        for path, form, values, _ in fields:
            _set(record, path, _draw(form, values, rng))
        path, form, values, what = rng.choice(fields)
        first, second, value = _PAIRS[form](values, rng)
        states = []
        for own in (first, second):
            state = json.loads(json.dumps(record))
            _set(state, path, own)
            states.append(state)
        slots = {"what": what, "value": str(value)}
        choices: tuple[Choice, ...] = ()
        if form == "enum" and rng.random() < 0.6:
            names = values.split(", ")
            question = fill(rng.choice(fragments.words("choice")), slots)
            choices = (Choice(question, names, (names.index(str(first)), names.index(str(second)))),)
        yield Scenario(_present(states, rng), {form: (True, False)}, slots, choices)


def _schemas(fragments: Fragments, heldout: bool) -> list[str]:  # noqa: FBT001
    names = fragments.names("schema")
    return names[-2:] if heldout else names[:-2]


def _gate(policy: list[str], tool: str, calls: list[Record], rng: Random) -> Pair:
    style = rng.randrange(4)
    key = rng.choice(("arguments", "args", "parameters"))
    first, second = (
        {"policy": policy if style == 0 else " ".join(policy), "tool_call": {"name": tool, key: call}}
        if style < 2
        else [*({"role": "policy", "content": one} for one in policy), {"role": "agent", "tool": tool, key: call}]
        if style == 2
        else "Policy:\n- " + "\n- ".join(policy) + f"\n\nThe agent wants to call {tool}({json.dumps(call)})"
        for call in calls
    )
    return first, second


def _present(states: list[Record], rng: Random) -> Pair:
    """As an object, in a list of one, or as JSON in a text."""
    roll = rng.random()
    first, second = (
        state if roll < 0.75 else [state] if roll < 0.85 else "Record: " + json.dumps(state, ensure_ascii=False)
        for state in states
    )
    return first, second


def _set(record: Record, path: str, value: object) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        record = record.setdefault(parent, {})  # type: ignore[assignment]
    record[last] = value


def _draw(form: str, values: str, rng: Random) -> object:
    if form == "number":
        low, high = map(int, values.split("-"))
        return rng.randint(low, high)
    if form == "bool":
        return rng.random() < 0.5
    names = values.split(", ")
    if form == "list":
        return rng.sample(names, rng.randint(1, len(names) - 1))
    return rng.choice([*names, None]) if form == "null" else rng.choice(names)


def _enum(values: str, rng: Random) -> tuple[object, object, object]:
    first, second = rng.sample(values.split(", "), 2)
    return first, second, first


def _bool(_: str, rng: Random) -> tuple[object, object, object]:
    return True, False, rng.choice(("",))


def _number(values: str, rng: Random) -> tuple[object, object, object]:
    low, high = map(int, values.split("-"))
    limit = rng.randint(low + (high - low) // 5, high - (high - low) // 5)
    return rng.randint(limit + 1, high), rng.randint(low, limit - 1), limit


def _list(values: str, rng: Random) -> tuple[object, object, object]:
    names = rng.sample(values.split(", "), len(values.split(", ")))
    kept = names[1 : rng.randint(2, len(names))]
    place = rng.randint(0, len(kept))
    swapped = [*kept[:place], names[-1], *kept[place:]] if names[-1] not in kept else kept
    return [*kept[:place], names[0], *kept[place:]], swapped, names[0]


def _null(values: str, rng: Random) -> tuple[object, object, object]:
    return rng.choice(values.split(", ")), None, ""


_PAIRS: dict[str, Callable[[str, Random], tuple[object, object, object]]] = {
    "enum": _enum, "bool": _bool, "number": _number, "list": _list, "null": _null,
}  # fmt: skip
