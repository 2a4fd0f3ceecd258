"""`--compat`, `--name`, and keys as jev compares them; that the server heeds them is shown in tests/conformance."""

from pathlib import Path

import pytest

from ostraka_gateway.auth import Keys, load_keys
from ostraka_gateway.http_config import HttpConfig
from ostraka_gateway.served_model import ServedModel
from ostraka_shared.errors import Unauthenticated
from ostraka_shared.options import add_options, build_parser, read_settings
from tests.fake_model import make_fake_model


def read(*flags: str) -> HttpConfig:
    parser = build_parser("x", "")
    add_options(parser, HttpConfig)
    return read_settings(HttpConfig, parser.parse_args(flags))


def test_flags() -> None:
    assert (read().compat, read().name) == ("default", None)
    assert read("--compat=jevos", "--name=mine").name == "mine"
    with pytest.raises(SystemExit):
        read("--compat=other")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\udcff"])
def test_a_name_that_cannot_be_shown(name: str) -> None:
    with pytest.raises(ValueError, match="--name must be printable"):
        HttpConfig(name=name)


def test_a_model_is_served_under_a_name(tmp_path: Path) -> None:
    folder = make_fake_model(tmp_path / "model")
    assert ServedModel(folder).name == "fake-model"
    assert ServedModel(folder, name="mine").name == "mine"


@pytest.mark.parametrize("header", ["Bearer  k", "bearer k", "Bearer k ", "Bearer", "k", None])
def test_a_header_that_is_not_exact(header: str | None) -> None:
    keys = Keys(load_keys({"JEV_API_KEY": "k"}, None).digests, is_exact=True)
    assert keys.check("Bearer k") == "key1"
    with pytest.raises(Unauthenticated):
        keys.check(header)
