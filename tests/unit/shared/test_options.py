import os
from argparse import Namespace
from dataclasses import asdict, dataclass, fields, is_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka.serve_config import ServeConfig
from ostraka_gateway.config import GatewayConfig
from ostraka_shared.errors import ConfigError
from ostraka_shared.options import add_options, build_parser, group, option, read_settings, required, to_flags
from ostraka_worker.config import WorkerConfig


@dataclass(frozen=True)
class Settings:
    name: str = required("a text that must be given")
    count: int = option(3, "a number")
    limit: int | None = option(None, "a number that may be left out")
    folder: str | None = option(None, "a text that may be left out")
    wait_s: float = option(1.5, "seconds")
    cores: tuple[int, ...] = option((), "cores")
    is_loud: bool = option(False, "a switch")
    colour: str = option("red", "one of two", choices=("red", "blue"))

    def __post_init__(self):
        if self.count < 1:
            raise ValueError(f"--count must be at least 1, not {self.count}")


def read(argv, settings=Settings):
    parser = build_parser("test", "A test.")
    add_options(parser, settings)
    return read_settings(settings, parser.parse_args(argv))


@pytest.fixture
def refuses(capsys):
    """Calls with arguments that must not be taken, and returns what was said of them."""

    def call(*argv):
        with pytest.raises(SystemExit) as left:
            read(list(argv))
        assert left.value.code == 2
        return capsys.readouterr().err

    return call


def test_help_names_a_default_only_where_there_is_one():
    parser = build_parser("test", "A test.")
    add_options(parser, Settings)
    said = " ".join(parser.format_help().split())
    assert "a number (default: 3)" in said
    assert "None" not in said
    assert "False" not in said


def test_defaults():
    assert read(["--name=a"]) == Settings(name="a")


def test_flags():
    argv = [
        "--name=a",
        "--count=7",
        "--limit=9",
        "--folder=/x",
        "--wait-s=0.25",
        "--cores=0,2,5",
        "--is-loud",
        "--colour=blue",
    ]
    assert read(argv) == Settings("a", 7, 9, "/x", 0.25, (0, 2, 5), True, "blue")


def test_variables(monkeypatch):
    for name, text in {
        "NAME": "v",
        "COUNT": "7",
        "LIMIT": "9",
        "WAIT_S": "2",
        "CORES": "1,2",
        "IS_LOUD": "true",
    }.items():
        monkeypatch.setenv(f"OSTRAKA_{name}", text)
    assert read([]) == Settings("v", 7, 9, None, 2.0, (1, 2), True)


def test_a_file_is_below_a_variable_and_that_below_a_flag(monkeypatch, tmp_path):
    file = tmp_path / "ostraka.toml"
    file.write_text('[ostraka]\nname = "file"\ncount = 4\nlimit = 5\nis-loud = true\ncolour = "blue"\n')
    monkeypatch.setenv("OSTRAKA_COUNT", "6")
    monkeypatch.setenv("OSTRAKA_LIMIT", "7")
    found = read([f"--config={file}", "--limit=8"])
    assert found == Settings("file", 6, 8, is_loud=True, colour="blue")


def test_an_unknown_key_of_a_file_is_refused(refuses, tmp_path):
    file = tmp_path / "ostraka.toml"
    file.write_text('[ostraka]\nname = "file"\ncuont = 4\n')
    said = refuses(f"--config={file}")
    assert said == f"test: cuont in {file}: there is no such setting; did you mean count? (see test --help)\n"


def test_a_wrong_value_is_said_with_where_it_came_from(refuses, monkeypatch, tmp_path):
    file = tmp_path / "ostraka.toml"
    file.write_text('[ostraka]\nwait-s = "soon"\n')
    said = "test: wait-s in {}: invalid float value: 'soon' (see test --help)\n"
    assert refuses(f"--config={file}", "--name=a") == said.format(file)
    monkeypatch.setenv("OSTRAKA_COUNT", "x")
    assert refuses("--name=a") == "test: OSTRAKA_COUNT: invalid int value: 'x' (see test --help)\n"
    assert "argument --count: invalid int value: 'y'" in refuses("--name=a", "--count=y")
    monkeypatch.setenv("OSTRAKA_COUNT", "0")
    with pytest.raises(ConfigError, match=r"^--count must be at least 1, not 0 \(--count: OSTRAKA_COUNT\)$"):
        read(["--name=a"])


def test_a_wrong_flag_is_one_line_with_the_nearest_one(refuses):
    said = refuses("--name=a", "--cuont=1")
    assert said == "test: unrecognized arguments: --cuont=1; did you mean --count? (see test --help)\n"
    assert "did you mean" not in refuses("--name=a", "--xyzzy")


@pytest.mark.parametrize(
    "text",
    [
        'name = "file"',
        'name = "file"\n[ostraka]\n',
        "[ostrakon]\ncount = 4",
        "ostraka = 4",
        "[ostraka]\n[[ostraka]]",
        '[ostraka]\nconfig = "another.toml"',
    ],
)
def test_a_setting_that_would_have_no_effect_where_it_stands_in_a_file_is_refused_not_ignored(refuses, tmp_path, text):
    file = tmp_path / "ostraka.toml"
    file.write_text(text)
    assert f"{file} " in refuses(f"--config={file}", "--name=a")


@pytest.mark.parametrize("text", ["", "# nothing", "[ostraka]", "[ostraka]\n[other]\nname = 1"])
def test_a_file_may_hold_nothing_or_tables_of_others(tmp_path, text):
    file = tmp_path / "ostraka.toml"
    file.write_text(text)
    assert read([f"--config={file}", "--name=a"]) == Settings("a")


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("COUNTS", "; did you mean OSTRAKA_COUNT?"),
        ("WORKER", "; did you mean OSTRAKA_WORKERS?"),
        ("API_KEY", "; did you mean OSTRAKA_API_KEYS?"),
        ("HTTP_PORT", "; did you mean OSTRAKA_PORT?"),
        ("XYZZY", ""),
    ],
)
def test_a_variable_that_nothing_reads_is_refused(refuses, monkeypatch, variable, said):
    monkeypatch.setenv(f"OSTRAKA_{variable}", "9")
    expected = f"test: OSTRAKA_{variable}: there is no such setting{said} (see test --help)\n"
    assert refuses("--name=a") == expected


def test_what_kubernetes_sets_for_services_of_our_name_is_no_setting(monkeypatch):
    for service in ("", "GATEWAY_", "WORKERS_"):
        for name, value in {
            "SERVICE_HOST": "10.0.0.1",
            "SERVICE_PORT": "8017",
            "SERVICE_PORT_HTTP": "8017",
            "PORT": "tcp://[fd00::1]:8017",
            "PORT_8017_TCP": "tcp://10.0.0.1:8017",
            "PORT_8017_TCP_PROTO": "tcp",
            "PORT_8017_TCP_PORT": "8017",
            "PORT_8017_TCP_ADDR": "10.0.0.1",
        }.items():
            monkeypatch.setenv(f"OSTRAKA_{service}{name}", value)
    assert read(["--name=a"], Outer) == Outer(Settings("a"))


def test_the_file_may_be_named_by_a_variable_and_hold_what_other_commands_read(refuses, monkeypatch, tmp_path):
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text('[ostraka]\nname = "one"\nbatch-tokens = 4\n')
    two.write_text('[ostraka]\nname = "two"\nbatch_tokens = 4\n')
    monkeypatch.setenv("OSTRAKA_CONFIG", str(one))
    assert read([]).name == "one"
    assert f"batch_tokens in {two}: there is no such setting" in refuses(f"--config={two}")
    monkeypatch.setenv("OSTRAKA_CONFIG", str(tmp_path / "none"))
    assert refuses().startswith("test: OSTRAKA_CONFIG: Unable to open config file")


def test_an_empty_variable_is_an_unset_one_and_an_address_of_kubernetes_no_port(monkeypatch):
    for name in ("NAME", "COUNT", "FOLDER", "IS_LOUD", "COLOUR"):
        monkeypatch.setenv(f"OSTRAKA_{name}", "")
    monkeypatch.setenv("OSTRAKA_PORT", "tcp://10.0.0.1:80")
    assert read(["--name=a"], Outer) == Outer(Settings("a"))
    monkeypatch.setenv("OSTRAKA_PORT", "81")
    assert read(["--name=a"], Outer).port == 81


@pytest.mark.parametrize(
    "flag", ["--grace-s=inf", "--not-ready-s=1e300", f"--batch-tokens={10**20}", "--state-cache=9e99"]
)
def test_a_number_beyond_all_use_is_refused(flag):
    name, _, text = flag.partition("=")
    value = float(text) if name.endswith("-s") else int(float(text))
    with pytest.raises(ConfigError, match=f"{name} must be at most"):
        read([f"{name}={value}"], ServeConfig)


@pytest.mark.parametrize("flag", ["--cuont=1", "--cou=1", "--limits=1", "extra"])
def test_an_unknown_or_shortened_flag_is_refused(refuses, flag):
    assert flag in refuses("--name=a", flag)


@pytest.mark.parametrize(
    "flag", ["--count=", "--count=1.5", "--count=x", "--wait-s=soon", "--cores=0,x", "--cores=0-3", "--colour=green"]
)
def test_a_value_of_the_wrong_type_is_refused(refuses, flag):
    assert flag.partition("=")[0] in refuses("--name=a", flag)


def test_a_list_that_is_none_is_refused_in_words_for_its_user(refuses):
    assert "argument --cores: '0-3' should be whole numbers with commas between" in refuses("--name=a", "--cores=0-3")


def test_two_dashes_alone_are_no_value():
    """`--name=--`: until Python 3.13, argparse makes an empty list of it, whatever the option's type."""
    with pytest.raises(ConfigError, match="--name must not be just --"):
        read_settings(Settings, Namespace(**asdict(Settings("a")) | {"name": []}))


def test_what_must_be_given_must_be_given(refuses):
    assert "--name" in refuses()


def test_a_refusal_of_the_settings_themselves_is_a_config_error():
    with pytest.raises(ConfigError, match="--count must be at least 1, not 0"):
        read(["--name=a", "--count=0"])


# Two dashes alone are no value to argparse, so no settings that were read have them.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12).filter(lambda text: text != "--")


@given(
    st.builds(
        Settings,
        name=TEXT,
        count=st.integers(1, 10**9),
        limit=st.none() | st.integers(-(10**9), 10**9),
        folder=st.none() | TEXT,
        wait_s=st.floats(allow_nan=False),
        cores=st.lists(st.integers(0, 500), max_size=5).map(tuple),
        is_loud=st.booleans(),
        colour=st.sampled_from(["red", "blue"]),
    )
)
def test_a_child_given_the_flags_has_the_same_settings(settings):
    assert read(to_flags(settings)) == settings


def test_flags_win_over_the_variables_a_child_inherits(monkeypatch):
    settings = Settings("a", cores=())
    monkeypatch.setenv("OSTRAKA_NAME", "other")
    monkeypatch.setenv("OSTRAKA_CORES", "5")
    monkeypatch.setenv("OSTRAKA_COUNT", "5")
    assert read(to_flags(settings)) == settings


@dataclass(frozen=True)
class Outer:
    inner: Settings = group(Settings)
    port: int = option(80, "a number")


def test_a_group_s_fields_are_options_beside_the_others(monkeypatch, tmp_path):
    file = tmp_path / "ostraka.toml"
    file.write_text("[ostraka]\ncount = 4\nport = 81\n")
    monkeypatch.setenv("OSTRAKA_LIMIT", "9")
    found = read([f"--config={file}", "--name=a"], Outer)
    assert found == Outer(Settings("a", 4, 9), 81)
    monkeypatch.delenv("OSTRAKA_LIMIT")
    assert read(to_flags(found), Outer) == found
    with pytest.raises(ConfigError, match="--count must be at least 1"):
        read(["--name=a", "--count=0"], Outer)


def leaves(settings):
    """Every option of a settings class, those of its groups too."""
    for each in fields(settings):
        yield from leaves(each.default_factory) if is_dataclass(each.default_factory) else [each]


@pytest.mark.parametrize("settings", [ServeConfig, GatewayConfig, WorkerConfig])
def test_every_option_of_every_process_says_what_it_does(settings, capsys):
    parser = build_parser("test", "A test.")
    add_options(parser, settings)
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])  # a variable is only named once arguments are parsed
    text = " ".join(capsys.readouterr().out.split())
    for each in leaves(settings):
        assert f"--{each.name.replace('_', '-')}" in text
        assert f"OSTRAKA_{each.name.upper()}" in text
        assert len(each.metadata["help"]) > 15
    assert len(fields(settings)) < 17


def test_no_test_inherits_settings():
    assert not [name for name in os.environ if name.startswith("OSTRAKA_")]
