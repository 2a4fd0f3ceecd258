import signal
from types import SimpleNamespace

import pytest

from ostraka.departure import end_workers
from ostraka.generation import Generation


class Process(SimpleNamespace):
    def send(self, number):
        self.sent = number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_are_told_and_what_forks_them_is_killed_as_it_may_stand_still(number):
    worker, relieved, zygote = (Process(name=name, restart_at=1.0) for name in ("w0", "w1", "zygote 0"))
    end_workers(Generation(1, [], [worker], zygotes=[zygote], relieved=[relieved]), number)
    assert [each.sent for each in (worker, relieved, zygote)] == [number, number, signal.SIGKILL]
    assert all(each.restart_at is None for each in (worker, relieved, zygote))
