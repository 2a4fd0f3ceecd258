import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostraka_worker.engine import Line
from ostraka_worker.fake_engine import FakeEngine, fake_logits
from tests.waiting import wait_until

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=6)
PROMPTS = st.lists(st.tuples(IDS, IDS.filter(len)), min_size=1, max_size=5)


def prompt(prefix, suffix):
    return Line(np.array(prefix + suffix, np.uint32))


@given(PROMPTS)
@settings(max_examples=50)
def test_an_answer_does_not_depend_on_its_company(parts):
    prompts = [prompt(*each) for each in parts]
    engine = FakeEngine({})
    together = engine.run(prompts)
    assert together.shape == (len(prompts), 2)
    assert together.dtype == np.float32
    for row, each in zip(together, prompts, strict=True):
        assert row.tolist() == engine.run([each])[0].tolist()


@given(IDS, IDS.filter(len))
def test_it_is_the_whole_prompt_that_counts_not_where_it_is_cut(prefix, suffix):
    engine = FakeEngine({})
    whole = engine.run([prompt([], prefix + suffix)])
    memory = engine.memory(len(prefix))
    first, rest = np.array(prefix, np.uint32), np.array(suffix, np.uint32)
    if prefix:
        engine.run([Line(first, is_answered=False, keep=memory, keep_tokens=len(first))])
        assert engine.run([Line(first, is_answered=False), Line(rest, parent=0)]).tolist() == whole.tolist()
    assert engine.run([Line(rest, memory, len(prefix))]).tolist() == whole.tolist()
    assert whole[0].tolist() == fake_logits(np.array(prefix + suffix, np.uint32)).tolist()
    assert np.abs(whole).max() <= 2.0


@pytest.mark.parametrize(("one", "other"), [([1, 2], [2, 1]), ([5], [5, 5]), ([1, 2, 3], [1, 2, 4]), ([7], [8])])
def test_tokens_and_places_count(one, other):
    engine = FakeEngine({})
    assert engine.run([prompt([], one)]).tolist() != engine.run([prompt([], other)]).tolist()


def test_a_plan_it_does_not_know_is_refused():
    with pytest.raises(TypeError):
        FakeEngine({"fail_on_tokne": 3})


def test_an_engine_that_cannot_start():
    with pytest.raises(RuntimeError, match="no such instruction"):
        FakeEngine({"fail_to_load": "no such instruction"})


@pytest.mark.parametrize("where", [([9], [1]), ([1], [9]), ([], [9])])
def test_a_trigger_anywhere_fails_the_whole_call(where):
    engine = FakeEngine({"fail_on_token": 9})
    with pytest.raises(RuntimeError, match="told to fail"):
        engine.run([prompt([], [1]), prompt(*where)])
    engine.run([prompt([], [1])])


def test_nan_in_every_row():
    logits = FakeEngine({"nan_on_token": 9}).run([prompt([], [1]), prompt([], [9])])
    assert np.isnan(logits).all()


def test_death_is_sudden():
    script = (
        "import numpy as np; from ostraka_worker.engine import Line; from ostraka_worker.fake_engine import FakeEngine;"
        "one = Line(np.array([9], np.uint32)); FakeEngine({'die_on_token': 9}).run([one])"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=30).returncode == -signal.SIGSEGV


def test_a_stall_ends_with_its_file(tmp_path):
    release = tmp_path / "release"
    engine = FakeEngine({"stall_on_token": 9, "stall_until": str(release)})
    found = []
    thread = threading.Thread(target=lambda: found.append(engine.run([prompt([], [9])])))
    thread.start()
    assert thread.is_alive()
    assert not found
    release.touch()
    wait_until(lambda: found)
    thread.join()
