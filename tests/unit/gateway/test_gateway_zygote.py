"""What gateways are forked from, where it cannot load."""

import socket

import pytest
from structlog.testing import capture_logs

from ostraka_gateway import zygote
from ostraka_gateway.config import GatewayZygoteConfig
from ostraka_shared import zygote as shared_zygote
from ostraka_shared.options import to_flags


@pytest.mark.parametrize("what", ["altered", "gone"])
def test_a_tokenizer_that_cannot_be_used_is_said_and_nothing_is_forked(fake_model, monkeypatch, what):
    for name in ("configure_logs", "log_stray_signals", "name_process"):
        monkeypatch.setattr(shared_zygote, name, lambda *_: None)
    fake_model.tokenizer.write_bytes(b"{}") if what == "altered" else fake_model.tokenizer.unlink()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, capture_logs() as events:
        assert zygote.main(to_flags(GatewayZygoteConfig(str(fake_model.path), theirs.detach(), ("figures",)))) == 1
        assert ours.recv(1) == b"", "who waits for a gateway sees that nobody is there"
    assert [(event["event"], event["error"]) for event in events] == [("zygote_failed", "ModelDamaged")]
