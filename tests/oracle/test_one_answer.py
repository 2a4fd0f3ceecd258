"""An answer is the same, bit for bit, however it comes about: alone, in company, with a kept state or a part of one, in
pieces, as a tree, by another worker, after a restart."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from ostraka_shared.messages import Work
from ostraka_shared.model_folder import GRAPH_FILE, ModelFolder
from ostraka_worker import planner
from ostraka_worker.build.checkpoint import read_checkpoint
from ostraka_worker.build.graph import write_graph
from ostraka_worker.build.kernel_graphs import KINDS
from ostraka_worker.build.progress import Silent
from ostraka_worker.inference import BatchRun
from ostraka_worker.kernels import LIBRARY, graph_for, usable_kinds
from ostraka_worker.kernels.build import missing_for_compiling
from ostraka_worker.onnx_engine import OnnxEngine
from ostraka_worker.snapshots import Snapshots
from tests.oracle.requests import COUNT, Answers, answers_alone, make_works
from tests.unit.worker.build.tiny import write_tiny


class Bench:
    """A model in one variant, the requests, and what each must be answered."""

    def __init__(self, graph: Path, works: list[Work]) -> None:
        self.graph = graph
        self.engine = OnnxEngine(graph)
        self.works = works
        self.expected = answers_alone(self.engine, works)

    def answer(self, batch: Sequence[int], budget: int, snapshots: Snapshots | None = None) -> Answers:
        run = BatchRun([self.works[index] for index in batch], budget, snapshots)
        for call in run.calls:
            run.run(self.engine, call)
        assert run.failures == {}
        return run.answers()

    def check(self, order: Sequence[int], most: int, budget: int, snapshots: Snapshots | None = None) -> None:
        """In batches of up to `most` requests."""
        for start in range(0, len(order), most):
            batch = order[start : start + most]
            assert self.answer(batch, budget, snapshots) == [self.expected[index] for index in batch]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("oracle")
    made = {}
    for weights in KINDS:
        kind = Kind.BF16 if weights == "bf16" else Kind.F32
        source = write_tiny(folder / f"{weights}.gguf", layers=6, head_dims=32, kind=kind)
        made[weights] = folder / weights / GRAPH_FILE
        made[weights].parent.mkdir()
        precision = "fp32" if weights == "bf16" else weights
        write_graph(read_checkpoint(source, Silent()), ANSWER_TOKENS, precision, made[weights].parent, Silent())
    return made


ANSWER_TOKENS = (15, 16)
VARIANTS = [
    (weights, kind)
    for weights, kinds in KINDS.items()
    for kind in ("", *kinds)
    if weights != "bf16" or kind == "amx"  # all others of bf16 give fp32's bits
]


REAL = [("fp32", kind) for kind in ("", *KINDS["bf16"])] + [("int8", kind) for kind in ("", *KINDS["int8"])]
"""An adapter's weights are in bfloat16."""


def variant_of(graph: Path, kind: str) -> Path:
    """The graph of the runtime's own operators, or one with our kernels, where they can run."""
    if kind and kind not in usable_kinds():
        missing = missing_for_compiling()
        assert LIBRARY.is_file() or missing, "the kernels can be made here: python -m ostraka_worker.kernels.build"
        pytest.skip(missing or f"the processor has no {kind}")
    return graph_for(graph, kind) if kind else graph


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda variant: "-".join(filter(None, variant)))
def bench(request: pytest.FixtureRequest, graphs: dict[str, Path]) -> Bench:
    weights, kind = request.param
    return Bench(variant_of(graphs[weights], kind), make_works())


def shuffled(seed: int, count: int = COUNT) -> list[int]:
    return np.random.default_rng(seed).permutation(count).tolist()


def test_the_requests_are_of_every_form(bench: Bench) -> None:
    assert len(bench.works) >= 200
    assert len({answers for each in bench.expected for answers in each}) > 300
    assert {len(work.suffixes) for work in bench.works} == {1, 2, 3, 7}


def test_alone_as_a_tree(bench: Bench) -> None:
    bench.check(range(COUNT), 1, 256)


@pytest.mark.parametrize(("most", "budget"), [(4, 64), (9, 256), (30, 1000)])
def test_with_random_mates(bench: Bench, most: int, budget: int) -> None:
    bench.check(shuffled(most), most, budget)


@pytest.mark.parametrize("most_tokens", [300, 1200, 20_000])
def test_cold_then_warm_with_states_that_come_and_go(bench: Bench, most_tokens: int) -> None:
    snapshots = Snapshots(50, most_tokens)
    for seed, most in ((1, 1), (2, 5), (3, 12)):
        bench.check(shuffled(seed), most, 256, snapshots)
    assert snapshots.counts.hits > COUNT
    assert snapshots.counts.reused_tokens > 10_000


def test_a_part_of_a_kept_state(bench: Bench) -> None:
    """Only the longest states are asked about first, so that all others find a part of one, of any length."""
    order = sorted(range(COUNT), key=lambda index: -bench.works[index].state_tokens)
    snapshots = Snapshots(3, 20_000)
    bench.check(order, 1, 256, snapshots)
    assert snapshots.counts.hits > COUNT // 3


def test_the_largest_difference_is_no_bit(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """What docs/decisions/0010 rests on, and prints."""
    expected = np.array([answer for each in bench.expected for answer in each])
    assert len(expected) >= 500
    differing, largest = 0, 0.0
    for budget, snapshots in ((256, None), (128, Snapshots(20, 4000)), (256, Snapshots(20, 4000))):
        read = [bench.answer(range(first, min(first + 8, COUNT)), budget, snapshots) for first in range(0, COUNT, 8)]
        found = np.array([answer for batch in read for each in batch for answer in each])
        differing += int((found.view(np.uint64) != expected.view(np.uint64)).sum())
        largest = max(largest, float(np.abs(found - expected).max()))
    variant = "/".join(bench.graph.parts[-2:])
    with capsys.disabled():
        print(f"\n{variant}: {len(expected)} prompts, 3 ways: {differing} answers differ, by up to {largest:g}")  # noqa: T201
    assert (differing, largest) == (0, 0.0)


@pytest.mark.parametrize("piece", [5, 48, 100])
def test_in_pieces(bench: Bench, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "PIECE_TOKENS", piece)
    bench.check(shuffled(piece)[:100], 3, 128, Snapshots(10, 2000))


def test_by_another_worker(bench: Bench) -> None:
    assert answers_alone(OnnxEngine(bench.graph), bench.works[:60]) == bench.expected[:60]
    assert answers_alone(OnnxEngine(bench.graph, threads=2), bench.works[:60]) == bench.expected[:60]


def test_split_over_two_workers(bench: Bench) -> None:
    """The gateway may give each of them any of a request's prompts."""
    engines = [OnnxEngine(bench.graph), bench.engine]
    kept = [Snapshots(8, 2000), Snapshots(8, 2000)]
    split = [index for index, work in enumerate(bench.works) if len(work.suffixes) > 2][:60]
    for index in split:
        work, answers = bench.works[index], {}
        for number, engine in enumerate(engines):
            places = range(number, len(work.suffixes), 2)
            part = Work("part", 1, 1000, work.prefix, tuple(work.suffixes[p] for p in places), work.state_tokens)
            run = BatchRun([part], 256, kept[number])
            for call in run.calls:
                run.run(engine, call)
            answers |= dict(zip(places, run.answers()[0], strict=True))
        assert tuple(answers[place] for place in range(len(work.suffixes))) == bench.expected[index]


def test_after_a_restart(bench: Bench) -> None:
    command = [sys.executable, "-m", "tests.oracle.requests", str(bench.graph)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    assert [tuple(each) for each in json.loads(done.stdout)] == bench.expected


@pytest.mark.e2e
@pytest.mark.parametrize(("precision", "kind"), REAL)
def test_of_the_real_model(real_folders: dict[str, ModelFolder], precision: str, kind: str) -> None:
    bench = Bench(variant_of(real_folders[precision].graph, kind), make_works(24, 49_000))
    snapshots = Snapshots(8, 3000)
    bench.check(shuffled(5, 24), 6, 256)
    bench.check(shuffled(6, 24), 1, 256, snapshots)
    bench.check(shuffled(7, 24), 4, 128, snapshots)
    assert snapshots.counts.hits > 10
