"""When the start is over, by what the gateways report."""

from types import SimpleNamespace

import pytest

from ostraka.children import Child
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation
from ostraka.restarts import RestartPolicy
from ostraka.startup import Startup
from ostraka_gateway.orders import Report

LISTENER = SimpleNamespace(getsockname=lambda: ("127.0.0.1", 8017))


def gateway(ready, **state):
    """`ready`: how many workers it says are ready; None while it has said nothing."""
    child = GatewayChild("gateway", lambda _: [], RestartPolicy(lambda: 0.5), process=SimpleNamespace(pid=0))
    child.report, child.has_reported = Report(ready_workers=ready or 0), ready is not None
    for name, value in state.items():
        setattr(child, name, value)
    return child


@pytest.mark.parametrize(
    ("gateways", "is_over"),
    [
        ([gateway(2)], True),
        ([gateway(1)], False),
        ([gateway(None)], False),
        ([gateway(2), gateway(1)], False),
        ([gateway(2), gateway(None)], False),
        ([gateway(2), gateway(2, process=None)], False),
        ([gateway(2), gateway(None, is_given_up=True)], True),
        ([gateway(None, is_given_up=True)], False),
    ],
)
def test_all_workers_are_ready_at_every_gateway_that_was_not_given_up(gateways, is_over):
    workers = [Child(name, lambda _: [], RestartPolicy(lambda: 0.5)) for name in ("w0", "w1", "w2")]
    workers[2].is_given_up = True
    startup = Startup(LISTENER)
    startup.look(Generation(1, gateways, workers))
    assert startup.is_over is is_over
