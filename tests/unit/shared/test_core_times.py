"""What the kernel says of real processes: of one that runs, of one that is stopped, of one that has ended."""

import os
import signal
import subprocess
import sys

from ostraka_shared.core_times import read_core_times
from tests.waiting import wait_until


def test_a_process_that_turns_wants_a_core_and_one_that_is_stopped_does_not():
    before = read_core_times(os.getpid())
    assert before
    assert wait_until(lambda: read_core_times(os.getpid()).ran_s > before.ran_s)
    assert read_core_times(os.getpid()).wants_core, "it reads this"
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        wait_until(lambda: read_core_times(child.pid).wants_core)
        child.send_signal(signal.SIGSTOP)
        wait_until(lambda: not read_core_times(child.pid).wants_core)
        assert read_core_times(child.pid) == read_core_times(child.pid), "it stands still"
    finally:
        child.kill()
        child.wait()
    assert read_core_times(child.pid) is None
