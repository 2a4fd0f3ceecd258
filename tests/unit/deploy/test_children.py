"""A child that cannot be started; and one whose forks come to nothing."""

from types import SimpleNamespace

from structlog.testing import capture_logs

from ostraka import forking
from ostraka.children import FEW_MUTE, Child, ForkFailed
from ostraka.restarts import RestartPolicy


def test_a_zygote_that_cannot_be_started_for_a_worker_is_still_started_when_it_is_due(monkeypatch):
    def no_process(_):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(forking, "adopt_orphans", lambda: True)
    monkeypatch.setattr(forking.Zygote, "_popen", no_process)
    zygote = forking.Zygote("zygote 0", lambda _: [], RestartPolicy(lambda: 0.5))
    zygote.restart_at = 5.0
    assert zygote.fork([]) is None
    assert (zygote.restart_at, zygote.is_running) == (5.0, False)
    zygote.hang_up()


class Ending:
    """A fork that ends as it is told to: it dies, or it never was."""

    pid = 0

    def __init__(self, *, has_served, failure=None):
        self.has_served, self.failure = has_served, failure

    def poll(self):
        if self.failure:
            raise self.failure
        return -6


def ways(monkeypatch, *, has_been_ready, endings):
    """How the child was started each time: all but the last end as `endings` say."""
    found = []
    monkeypatch.setattr(Child, "_popen", lambda _: SimpleNamespace(pid=0, poll=lambda: 1))
    left = iter(endings)
    child = Child("w0", lambda _: ["-m", "module"], RestartPolicy(lambda: 0.5), fork_from=lambda *_: next(left))
    with capture_logs() as events:
        for _ in range(len(endings)):
            child.start()
            found.append("fork" if child.forked else "load")
            if child.reap() is not None:
                child.schedule_restart(has_been_ready=has_been_ready)
    assert [event["event"] for event in events] == ["not_forked"] * found.count("load")
    return found


MUTE, SERVED = Ending(has_served=False), Ending(has_served=True)
SILENT = Ending(has_served=False, failure=ForkFailed("silent", may_be_repeated=True))
REFUSED = Ending(has_served=False, failure=ForkFailed("refused"))


def test_forks_in_vain_are_followed_by_one_that_loads_for_itself(monkeypatch):
    def after(*endings):
        return ways(monkeypatch, has_been_ready=True, endings=(*endings, SERVED))

    assert FEW_MUTE == 3
    assert after(MUTE, MUTE, MUTE) == ["fork", "fork", "fork", "load"]
    assert after(MUTE, SILENT, MUTE) == after(SILENT, SILENT, SILENT) == ["fork", "fork", "fork", "load"]
    assert after(REFUSED) == ["fork", "load"]
    assert after(MUTE, MUTE, SERVED, MUTE, MUTE) == ["fork"] * 6, "not in a row"
    assert after(SERVED, SERVED, SERVED, SERVED) == ["fork"] * 5, "what kills them is no fault of what they come from"
    found = after(*[MUTE] * 8)
    assert found == ["fork", "fork", "fork", "load"] * 2 + ["fork"], "and again"


def test_at_the_start_the_first_fork_in_vain_is(monkeypatch):
    assert ways(monkeypatch, has_been_ready=False, endings=(MUTE, SERVED)) == ["fork", "load"]
