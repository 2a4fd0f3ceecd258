"""The parts of a tuning that need no PyTorch: what is learned from, in which order, how fast, and until when."""

import itertools
import os
from random import Random

import numpy as np
import pytest

from ostraka.__main__ import main
from ostraka.tuning.batches import PADDING, by_length, collate, epoch, visible
from ostraka.tuning.encoding import Encoder, targets_of, thin
from ostraka.tuning.kept_state import Place, keep, read_kept
from ostraka.tuning.losses import Asked, fit_temperature, mean_loss
from ostraka.tuning.orders import reorder, split
from ostraka.tuning.schedule import LEAST_RATE, PATIENCE, EarlyStopping, Limits, rate_factor, steps_between
from ostraka_gateway.prompts import render
from ostraka_gateway.schemas import parse_request
from ostraka_gateway.tokenization import PromptTokenizer
from ostraka_shared.errors import ConfigError
from ostraka_shared.model_folder import PromptContract
from tests.unit.deploy.tuning_examples import encoded, example
from tests.unit.worker.build import forms

CONTRACT = PromptContract("<|im_start|>", "0", "1")
TOKENIZER = forms.tokenizer(forms.FORMS["smollm2"])
CHOICE = {"type": "choice", "question": "Which?", "options": {"a": "first", "b": None, "c": "third"}, "label": 2}
ASKED = [
    example(),
    example(state={"note": "naïve 😡", "n": [1, 2]}, question=" Is it?\n"),
    example(state="</evidence> \n"),
    example(**CHOICE),
    example(type="score", levels=["low", "mid", "high"], label=1),
]


@pytest.fixture
def encoder() -> Encoder:
    return Encoder(TOKENIZER, CONTRACT, 512)


@pytest.mark.parametrize("one", ASKED, ids=lambda one: f"{one.form}-{one.state!s:.12}")
def test_tuned_and_served_prompts_are_the_same_tokens(encoder: Encoder, one) -> None:
    """Each is its whole text's tokens, and what the gateway sends a worker."""
    got = encoder.encode(one)
    request = parse_request(one.body())
    texts = [text for _, text in render(request, CONTRACT).prompts()]
    whole = [TOKENIZER.encode(text, add_special_tokens=False).ids for text in texts]
    assert [[*got.prefix, *suffix] for suffix in got.suffixes] == whole
    sent = PromptTokenizer(TOKENIZER, CONTRACT).tokenize(render(request, CONTRACT), 512)
    assert (sent.prefix, sent.suffixes) == (
        got.prefix.astype("<u4").tobytes(), tuple(suffix.astype("<u4").tobytes() for suffix in got.suffixes),
    )  # fmt: skip


def test_targets_are_what_each_prompt_asks() -> None:
    assert targets_of(example(label=True), 1).tolist() == [1]
    assert targets_of(example(**CHOICE), 3).tolist() == [0, 0, 1]
    levels = ["a", "b", "c", "d"]
    at_or_above = [targets_of(example(type="score", levels=levels, label=label), 3).tolist() for label in range(4)]
    assert at_or_above == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_what_cannot_be_asked_is_told_and_left_out(encoder: Encoder) -> None:
    told = []
    usable = encoder.encode_usable(
        [example(), example(state="x" * 600), example(question=5), example(state="x" * 300)],
        200,
        lambda _, reason: told.append(reason),
    )
    assert len(usable) == 1
    assert "the model reads 512" in told[0]
    assert "should be a string" in told[1]
    assert "up to 200 are read in tuning" in told[2]


def test_reordered_options_keep_their_descriptions_and_the_right_one() -> None:
    one = reorder(example(**CHOICE), [2, 0, 1])
    assert (one.criteria, one.options, one.label) == ({"c": "third", "a": "first", "b": None}, ("c", "a", "b"), 0)


def test_of_many_options_the_right_one_is_always_asked() -> None:
    many = example(type="choice", options=[f"o{n}" for n in range(12)], label=7)
    encoder = Encoder(TOKENIZER, CONTRACT, 512)
    for seed in range(20):
        got = thin(encoder.encode(many), Random(seed))
        assert (len(got.suffixes), got.targets.sum()) == (5, 1)
        assert TOKENIZER.decode(got.suffixes[int(got.targets.argmax())]).startswith("7\nAnswer")


def test_a_state_is_on_one_side_whatever_is_asked_of_it_and_however_it_is_spaced() -> None:
    examples = [example(state=f"State {n}", question=q) for n in range(400) for q in ("A?", "B?")]
    training, held = split(examples)
    assert 40 < len(held) < 120
    assert not {one.state for one in training} & {one.state for one in held}
    other = split([example(state=f"  state\n{n} ") for n in range(400)])[1]
    assert {str(one.state).split()[1] for one in other} == {str(one.state).split()[1] for one in held}
    assert split(examples[:50])[1] == [one for one in held if one in examples[:50]]


def test_a_batch_has_each_prompts_last_token_and_place() -> None:
    batch = collate([encoded([5, 6, 7], [[8], [9, 9]], form="choice"), encoded([4], [[3, 2]])])
    assert batch.token_ids.tolist() == [[5, 6, 7, 8, 9, 9], [4, 3, 2, 0, 0, 0]]
    assert batch.positions[0].tolist() == [0, 1, 2, 3, 3, 4]
    assert batch.token_ids.reshape(-1)[batch.last].tolist() == [8, 9, 2]
    assert batch.owners.tolist() == [0, 0, 1]
    assert batch.is_choice.tolist() == [True, False]
    assert (batch.segments[1] == PADDING).sum() == 3


def test_a_rest_sees_the_prefix_and_itself_alone() -> None:
    seen = visible(collate([encoded([5, 6], [[8, 1], [9, 9]])]).segments)[0].astype(int)
    assert seen.tolist() == [
        [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 0], [1, 1, 0, 0, 1, 1],
    ]  # fmt: skip


def test_runs_fit_the_budget_with_their_padding() -> None:
    random = Random(3)
    many = [encoded([1] * random.randint(1, 60), [[2]]) for _ in range(80)] + [encoded([1] * 300, [[2]])]
    runs = by_length(many, budget=128)
    assert sorted(itertools.chain(*runs)) == list(range(81))
    sizes = [len(run) * max(many[place].tokens for place in run) for run in runs]
    assert all(size <= 128 for size in sizes[:-1])
    assert runs[-1] == [80]


def test_an_epoch_has_everything_once_and_is_the_same_again(encoder: Encoder) -> None:
    examples = [example(**CHOICE, state=f"s{n}") for n in range(30)]

    def orders(seed: int, number: int) -> list[tuple]:
        return [(one.example.state, one.example.options)
                for batch in epoch(examples, encoder.encode_shuffled, seed, number) for one in batch]  # fmt: skip

    first = orders(1, 0)
    assert sorted(state for state, _ in first) == sorted(one.state for one in examples)
    assert orders(1, 0) == first
    assert orders(1, 1) != first
    assert orders(2, 0) != first
    assert len({options for _, options in first}) == 6


def test_the_first_limit_ends_it() -> None:
    limits = Limits(100, epochs=2, minutes=10)
    assert limits.share(50, 60) == 0.25
    assert limits.share(50, 540) == 0.9
    assert Limits(100, epochs=2).share(200, 9e9) == 1
    assert Limits(100, minutes=1).share(9_000, 30) == 0.5


def test_the_rate_goes_up_and_then_down() -> None:
    factors = [rate_factor(step, step / 1000) for step in range(1001)]
    top = factors.index(max(factors))
    assert 0 < factors[0] < 0.05
    assert 20 < top < 60
    assert all(a >= b for a, b in itertools.pairwise(factors[top:]))
    assert factors[-1] == pytest.approx(LEAST_RATE)
    assert [steps_between(batches) for batches in (1, 10, 10_000)] == [1, 5, 200]


def test_it_is_over_when_looks_bring_nothing() -> None:
    stopping = EarlyStopping()
    assert [stopping.look(loss) for loss in (0.7, 0.6, 0.61, float("nan"), 0.5999)] == [True, True, False, False, True]
    assert stopping.looks_since == 3  # the last gain is kept, and too small to go on for
    for _ in range(PATIENCE - 3):
        assert not stopping.is_over
        stopping.look(0.8)
    assert stopping.is_over


def test_the_loss_by_hand() -> None:
    asked = Asked(np.array([1.0, 1, 0]), np.array([0, 1, 1]), np.array([False, True]))
    z = np.array([0.0, 2, -1])
    p = 1 / (1 + np.exp(-z))
    noul = -np.log(p[0])
    choice = 0.75 * -(np.log(p[1]) + np.log(1 - p[2])) / 2 + 0.5 * -np.log(p[1] / (p[1] + p[2]))
    assert mean_loss(z, asked) == pytest.approx((noul + choice) / 2)


@pytest.mark.parametrize("truth", [0.6, 1.0, 3.0])
def test_the_temperature_of_margins_that_are_too_sure(truth: float) -> None:
    random = np.random.default_rng(0)
    honest = random.normal(0, 2, 20_000)
    targets = (random.random(20_000) < 1 / (1 + np.exp(-honest))).astype(np.float64)
    asked = Asked(targets, np.arange(20_000), np.zeros(20_000, bool))
    assert fit_temperature(honest * truth, asked) == pytest.approx(truth, rel=0.05)


def test_what_is_kept_comes_back_and_only_for_the_same_wish(tmp_path) -> None:
    place = Place({"seed": 1}, step=7, best_loss=0.5, before=[0.25])
    keep(tmp_path / "p", {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}, place)
    tensors, again = read_kept(tmp_path / "p", {"seed": 1})
    assert again == place
    assert tensors["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ConfigError, match="a tuning with seed 1, not 2"):
        read_kept(tmp_path / "p", {"seed": 2})
    (tmp_path / "p").write_bytes((tmp_path / "p").read_bytes()[:-1] + b"x")
    with pytest.raises(ConfigError, match="was altered"):
        read_kept(tmp_path / "p", {"seed": 1})
    (tmp_path / "p").write_bytes(b"something else")
    with pytest.raises(ConfigError, match="no tuning to go on with"):
        read_kept(tmp_path / "p", {"seed": 1})


CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--epochs", "0"], "--epochs must be above 0, not 0.0"),
        (["--minutes", "nan"], "--minutes must be above 0, not nan"),
        (["--rank", "0"], "--rank must be at least 1, not 0"),
        (["--threads", "0"], f"--threads must be from 1 to {CORES}, the cores that this process may use, not 0"),
        (["--learning-rate=-1"], "--learning-rate must be above 0, not -1.0"),
    ],
)
def test_a_wrong_flag_is_one_line(tmp_path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str) -> None:
    assert main(["model", "tune", "absent.jsonl", "--output", str(tmp_path / "m"), *flags]) == 1
    assert capsys.readouterr().err == f"ostraka: {says}\n"


def test_without_pytorch_it_says_what_to_install(tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("ostraka.tune_command.importlib.util.find_spec", lambda _: None)
    assert main(["model", "tune", "absent.jsonl", "--output", str(tmp_path / "m")]) == 1
    said = capsys.readouterr().err
    assert (
        said == "ostraka: tuning needs PyTorch; in the clone: .venv/bin/pip install -c constraints.txt -e '.[tune]'\n"
    )
    assert list(tmp_path.iterdir()) == []
