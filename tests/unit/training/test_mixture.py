import json
from collections import Counter
from random import Random

from training.mixture import OWN_SHARE, SHORT_CHARS, draw

SHARES = {"clinc150": 2.0, "snips": 1.0}


def lines(name: str, chars: int, count: int = 50) -> list[str]:
    return [json.dumps({"state": "x" * chars, "question": "", "source": name, "n": n}) for n in range(count)]


def test_each_source_has_its_share_and_is_used_up_before_it_is_used_again() -> None:
    sources = {"clinc150": lines("clinc150", 5), "snips": lines("snips", 5)}
    drawn = [json.loads(line) for line in draw(SHARES, sources, lines("own", 5), 4000, Random(1))]
    found = Counter(one["source"] for one in drawn)
    assert abs(found["own"] / 4000 - OWN_SHARE) < 0.03
    assert abs(found["clinc150"] / found["snips"] - 2) < 0.2
    times = Counter(one["n"] for one in drawn if one["source"] == "snips")
    assert max(times.values()) - min(times.values()) <= 1


def test_long_ones_are_drawn_less_often() -> None:
    sources = {"clinc150": lines("short", SHORT_CHARS) + lines("long", 4 * SHORT_CHARS)}
    drawn = [json.loads(line)["source"] for line in draw({"clinc150": 1.0}, sources, lines("own", 5), 4000, Random(1))]
    found = Counter(drawn)
    assert 3 < found["short"] / found["long"] < 5


def test_the_same_seed_draws_the_same() -> None:
    sources = {"clinc150": lines("clinc150", 5)}
    first, again = (list(draw({"clinc150": 1.0}, sources, lines("own", 5), 100, Random(3))) for _ in range(2))
    assert first == again
