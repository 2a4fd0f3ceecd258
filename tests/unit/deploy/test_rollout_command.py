"""What `ostraka rollout` refuses before it asks, and what the server does with a wish that is none."""

import argparse
import socket
from unittest.mock import Mock

import pytest

from ostraka import rollout_command
from ostraka.front_desk import BUSY, SOCKET_NAME, FrontDesk
from ostraka_shared.errors import ConfigError


def parse(*arguments):
    parser = argparse.ArgumentParser()
    rollout_command.register(parser)
    return parser.parse_args(arguments)


def test_a_folder_of_nobody_is_told_in_one_line():
    with pytest.raises(ConfigError, match="~nobody-here/model names no folder"):
        rollout_command.run(parse("~nobody-here/model"))


def test_ctrl_c_says_what_becomes_of_the_rollout(monkeypatch, capsys):
    server, command = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(rollout_command, "RunningCluster", Mock())
    monkeypatch.setattr(rollout_command, "_reach", lambda _: command)
    monkeypatch.setattr(rollout_command, "_receive", Mock(side_effect=KeyboardInterrupt))
    with server, pytest.raises(KeyboardInterrupt):
        rollout_command.run(parse())
    assert (
        capsys.readouterr().err == "\nostraka: interrupted; the rollout is given up, unless it was draining already\n"
    )
    assert command.fileno() == -1, "closed, which gives it up"


@pytest.fixture
def desk(tmp_path):
    with FrontDesk(tmp_path) as desk:
        yield desk


@pytest.fixture
def visit(desk, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor:
        visitor.connect(str(tmp_path / SOCKET_NAME))
        assert desk.take() is None
        yield visitor


@pytest.mark.parametrize("words", [b"no JSON", b"\xff", b"[]", b"[" * 60_000])
def test_a_wish_that_cannot_be_read_is_one_to_be_refused(desk, visit, words):
    visit.send(words)
    assert desk.take() == {"unreadable": True}


def test_the_second_to_ask_is_told_so(desk, visit, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as second:
        second.connect(str(tmp_path / SOCKET_NAME))
        desk.take()
        assert BUSY in second.recv(1000).decode()
    assert desk.has_visitor


def test_who_has_gone_is_noticed(desk, visit):
    visit.close()
    assert desk.take() is None
    assert not desk.has_visitor
