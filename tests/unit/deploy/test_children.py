"""A child that cannot be started."""

from ostraka import forking
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
