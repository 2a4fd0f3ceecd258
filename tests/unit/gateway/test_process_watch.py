"""What a gateway knows of a worker's process."""

import os
import resource
import subprocess
import sys

import pytest

from ostraka_gateway.process_watch import ProcessWatch
from ostraka_shared.addresses import host_id

SELECTABLE = 1024


@pytest.fixture
def crowded():
    """Every descriptor that `select` could look at is taken, as by many clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * SELECTABLE:
        pytest.skip("this system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SELECTABLE), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < SELECTABLE:
        taken.append(os.dup(taken[0]))
    yield
    for each in taken:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("crowded")
async def test_beside_a_thousand_clients_it_is_still_known_whether_a_worker_runs():
    with subprocess.Popen(  # noqa: ASYNC220  it starts in a moment, and nothing else waits
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as process:
        watch = ProcessWatch()
        watch.add(b"w0", host_id(), process.pid, lambda: None)
        try:
            assert watch.is_running(b"w0")
            process.kill()
            process.wait()
            assert not watch.is_running(b"w0")
            assert not watch.is_running(b"w1")
        finally:
            watch.remove(b"w0")
