"""`ostraka model tune` on a tiny random checkpoint: it learns, can be interrupted, and what it makes is served. Needs PyTorch."""

import gzip
import json
import signal
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ostraka.__main__ import main  # noqa: E402
from ostraka.tuning import job  # noqa: E402
from ostraka_shared.model_folder import open_folder, verify_folder  # noqa: E402
from ostraka_worker.build.adapter_file import read_adapter  # noqa: E402
from tests.unit.worker.build.tiny import write_tiny  # noqa: E402


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf")


@pytest.fixture
def rule(tmp_path: Path) -> Path:
    """Yes where the state ends with z; and the same as a choice and as a score."""
    random = np.random.default_rng(4)
    lines = []
    for n in range(240):
        is_yes = bool(n % 2)
        state = "".join(random.choice(list("abcdefgh"), 3)) + ("z" if is_yes else "q")
        forms = [
            {"question": "z?", "label": is_yes},
            {"type": "choice", "question": "?", "options": ["z", "q"], "label": int(not is_yes)},
            {"type": "score", "question": "?", "levels": ["q", "z"], "label": int(is_yes)},
        ]
        lines.append(json.dumps({"state": state, "source": "rule"} | forms[0 if n % 4 < 2 else 1 + n % 3 // 2]))
    path = tmp_path / "rule.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def tune(rule: Path, source: Path, output: Path, *flags: str) -> int:
    words = [rule, "--source", source, "--output", output, "--rank", "8", "--threads", "1", *flags]
    return main(["model", "tune", *map(str, words)])


def lines(output: Path) -> list[dict]:
    text = output.with_name(f"{output.name}.tuning").joinpath("log.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_it_learns_a_rule_and_what_it_makes_is_served(
    rule: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "Tuned"
    assert tune(rule, source, output, "--epochs", "14", "--learning-rate", "0.01") == 0
    out = capsys.readouterr().out
    assert out.endswith(f"{output}\n")
    assert "after against before" in out
    folder = open_folder(output)
    verify_folder(folder)
    assert folder.spec.name == "tuned"
    work = tmp_path / "Tuned.tuning"
    report = json.loads((work / "report.json").read_text())["reports"]
    before, after = (report[side]["forms"]["noul"]["groups"][0]["accuracy"]["value"] for side in ("before", "after"))
    assert before < 0.8
    assert after > 0.95
    adapter = read_adapter(work / "tuned.safetensors")
    assert adapter.sha256 == folder.spec.source["adapter_sha256"]
    training = adapter.record.training
    assert training["held_out_loss"] < 0.3
    assert training["data"] == ["rule.jsonl.gz"]
    looks = [line["held_out_loss"] for line in lines(output) if "held_out_loss" in line]
    assert looks[0] > 0.6
    # The adapter alone, and a second tuning that goes on from it.
    again = ["model", "build", source, "--adapter", adapter.path, "--output", tmp_path / "again"]
    assert main(list(map(str, again))) == 0
    assert open_folder(tmp_path / "again").fingerprint == folder.fingerprint
    (tmp_path / "bad.jsonl").write_text("nonsense\n")
    further = [
        "model",
        "tune",
        rule,
        tmp_path / "bad.jsonl",
        "--source",
        source,
        "--adapter",
        adapter.path,
        "--output",
        tmp_path / "more",
        "--name",
        "place",
    ]
    assert main([*map(str, further), "--epochs", "0.5", "--threads", "1"]) == 1
    assert capsys.readouterr().err.endswith("ostraka: 1 lines could not be used\n")
    assert open_folder(tmp_path / "more").spec.name == "place"
    assert lines(tmp_path / "more")[0]["held_out_loss"] == pytest.approx(training["held_out_loss"], abs=0.02)


def test_an_interrupted_tuning_goes_on_to_the_very_same_model(
    rule: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(rule, source, tmp_path / "a" / "m", "--epochs", "1") == 0
    steps = lines(tmp_path / "a" / "m")[-1]["step"]
    output = tmp_path / "b" / "m"
    left = iter([False] * (steps // 2) + [True])

    class Interrupted:
        def __enter__(self):
            return lambda: next(left)

        def __exit__(self, *_: object) -> None: ...

    with monkeypatch.context() as patched:
        patched.setattr(job, "stop_on_signal", Interrupted)
        assert tune(rule, source, output, "--epochs", "1") == 130
    assert "go on with --resume" in capsys.readouterr().err
    assert not output.exists()
    assert tune(rule, source, output, "--epochs", "1") == 1
    assert "has a tuning already" in capsys.readouterr().err
    assert tune(rule, source, output, "--epochs", "1", "--resume", "--seed", "9") == 1
    assert "a tuning with seed 1, not 9" in capsys.readouterr().err
    assert tune(rule, source, output, "--epochs", "1", "--resume") == 0
    assert lines(output)[-1]["step"] == steps
    for name in ("model.onnx.data", "tokenizer.json"):
        assert open_folder(output).hashes[name] == open_folder(tmp_path / "a" / "m").hashes[name]


def test_what_only_gets_worse_ends_early_and_leaves_the_start(rule: Path, source: Path, tmp_path: Path) -> None:
    assert tune(rule, source, tmp_path / "m", "--epochs", "40", "--learning-rate", "3") == 0
    told = lines(tmp_path / "m")
    assert told[-1]["examples"] < 10 * 240
    assert [line["is_best"] for line in told if "is_best" in line] == [True] + [False] * 6
    stored = read_adapter(tmp_path / "m.tuning" / "m.safetensors").changes()
    assert not any(b.any() for _, b in stored.low_rank.values())


def test_a_first_signal_asks_and_a_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with job.stop_on_signal() as is_stopped:
        assert not is_stopped()
        signal.raise_signal(signal.SIGINT)
        assert is_stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with job.stop_on_signal() as is_stopped:
        signal.raise_signal(signal.SIGTERM)
        assert is_stopped()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--resume"], "there is nothing to go on with"),
        (["--layers", "3"], "--layers keeps 3 layers of a checkpoint that has 2"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    rule: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    assert tune(rule, source, tmp_path / "m", *flags) == 1
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_too_little_data_is_refused(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text('{"state": "a", "question": "b", "label": true}\nnonsense\n')
    assert tune(one, source, tmp_path / "m") == 1
    told = capsys.readouterr().err
    assert "one.jsonl:2: not JSON" in told
    assert "are too few" in told
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("m")) == [], "nothing was kept"


def test_a_place_that_is_taken_is_refused_before_anything_is_learned(
    rule: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes").write_text("mine")
    assert tune(rule, source, tmp_path / "m") == 1
    assert "exists and is not a model folder" in capsys.readouterr().err
    assert not (tmp_path / "m.tuning").exists()


def test_bfloat16_only_where_the_cpu_multiplies_it() -> None:
    assert job.best_dtype("processor: 0\nflags\t\t: fpu avx512_bf16 amx_tile\n") == torch.bfloat16
    assert job.best_dtype("flags : fpu avx2\n") == torch.float32
    assert job.best_dtype("Features : asimd\n") == torch.float32
