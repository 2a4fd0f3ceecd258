"""What somebody typed has an effect or is refused; what is wrong is told with where it came from."""

import os

import pytest

from ostraka.command import main
from ostraka.embedded_model import find_model
from ostraka_shared.errors import ConfigError, ModelMissing

SERVER = "--server=http://127.0.0.1:9"
EXAMPLE = '{"state": "s", "question": "q?", "type": "noul", "label": true}\n'


@pytest.fixture
def end(tmp_path, monkeypatch, capsys):
    """(exit code, what it said) of a command line, in a folder with a file of one labelled example."""
    (tmp_path / "one.jsonl").write_text(EXAMPLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ostraka.serve_command.configure_logs", lambda *_: None)  # this process's are the tests'

    def end(words):
        return main(words.split()), capsys.readouterr().err

    return end


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (f"decide one.jsonl {SERVER} --model=m", "--model"),
        (f"decide one.jsonl {SERVER} --precision int8", "--precision"),
        (f"decide one.jsonl {SERVER} --cache-dir=c", "--cache-dir"),
        (f"decide one.jsonl {SERVER} --threads=1", "--threads"),
        ("decide one.jsonl --model=m --concurrency=16", "--concurrency"),
        ("decide one.jsonl --model=m --cache-dir=c", "--cache-dir"),
        (f"eval one.jsonl {SERVER} --model=m", "--model"),
        (f"eval one.jsonl {SERVER} --compare=http://127.0.0.1:9 --threads=1", "--threads"),
        ("eval one.jsonl --model=m --compare=n --concurrency=2", "--concurrency"),
        ("serve --model=m --cache-dir=c", "--cache-dir"),
        ("serve --worker-start=fork --cores-per-worker=2", "--worker-start"),
        ("serve --state-cache=0 --state-cache-tokens=9", "--state-cache-tokens"),
        ("serve --compat=jevos --score-levels=10", "--score-levels"),
        ("rollout --requests=0 --share=0.1", "--share"),
        ("chaos kill --seconds=1", "--seconds"),
        ("model build m.gguf --output=o --cache-dir=c", "--cache-dir"),
        ("model build m.gguf --form=yes-no --answers a b", "--form"),
        ("model verify m --cache-dir=c", "--cache-dir"),
        ("model tune one.jsonl --output=o --source=s --cache-dir=c", "--cache-dir"),
    ],
)
def test_a_flag_without_an_effect_is_refused(end, words, flag):
    code, said = end(words)
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith(f"ostraka: {flag} has no effect ")


def test_a_variable_is_for_every_command_and_one_without_a_use_for_it_goes_on(end, monkeypatch):
    monkeypatch.setenv("OSTRAKA_MODEL", "m")
    monkeypatch.setenv("OSTRAKA_THREADS", "1")
    assert "has no effect" not in end("decide none.jsonl --server=http://127.0.0.1:9")[1]
    monkeypatch.setenv("OSTRAKA_SERVER", "http://127.0.0.1:9")
    said = end("decide one.jsonl --model=m")[1]
    assert said.endswith(" (--server: OSTRAKA_SERVER)\n")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("WORKERS", "0"),
        ("CORES_PER_WORKER", "999"),
        ("HOST", "192.0.2.1"),
        ("CONNECTIONS", "900000000"),
        ("MODEL", "/none"),
        ("API_KEYS_FILE", "/none"),
        ("CACHE_DIR", "~nobody-here"),
    ],
)
def test_a_wrong_value_is_told_with_its_variable_or_its_line_of_the_file(end, monkeypatch, tmp_path, variable, value):
    flag = f"--{variable.lower().replace('_', '-')}"
    monkeypatch.setenv(f"OSTRAKA_{variable}", value)
    code, said = end("serve --port=0")
    assert (code, said.splitlines()[-1].endswith(f" ({flag}: OSTRAKA_{variable})")) == (1, True)
    monkeypatch.delenv(f"OSTRAKA_{variable}")
    (tmp_path / "o.toml").write_text(f"[ostraka]\n{flag[2:]} = '{value}'\n")
    code, said = end("serve --port=0 --config=o.toml")
    assert (code, said.splitlines()[-1].endswith(f" ({flag}: {flag[2:]} in o.toml)")) == (1, True)
    assert end(f"serve --port=0 {flag}={value}")[1].splitlines()[-1].count("(--") == 0


@pytest.mark.parametrize("threads", [0, 99_999])
def test_threads_are_not_more_than_the_cores(end, threads):
    """The runtime starts as many as it is told to, and is then busy with them for ever."""
    cores = len(os.sched_getaffinity(0))
    said = f"--threads must be from 1 to {cores}, the cores that this process may use, not {threads}"
    assert end(f"decide one.jsonl --threads={threads}") == (1, f"ostraka: {said}\n")


def test_what_is_compared_is_not_called_the_model():
    with pytest.raises(ModelMissing, match=r"^--compare: no model folder"):
        find_model("/none", "unused", None, "--compare")
    with pytest.raises(ConfigError, match=r"^--cache-dir: ~nobody-here"):
        find_model(None, "~nobody-here", None)
