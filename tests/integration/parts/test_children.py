"""How a child begins, and what it dies of besides its own faults."""

import json
import os
import subprocess
import sys

import psutil

from tests.waiting import is_dead, wait_until

ORPHAN = """
import os, sys
from ostraka.children import Child
from ostraka.generation import Generation
from ostraka.restarts import RestartPolicy
script = (
    "import os, sys, json, signal\\n"
    "print(json.dumps({'pid': os.getpid(), 'group': os.getpgid(0), 'blocked': len(signal.pthread_sigmask(0, [])),"
    " 'ignores_hangup': signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,"
    " 'stdin': sys.stdin.read(), 'threads': os.environ['OMP_NUM_THREADS'],"
    " 'settings': [name for name in os.environ if name.startswith('OSTRAKA_')],"
    " 'telemetry': os.environ['ORT_DISABLE_TELEMETRY']}), flush=True)\\n"
    "signal.pause()"
)
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
signal.signal(signal.SIGHUP, signal.SIG_IGN)
child = Child("c", lambda incarnation: ["-c", script], RestartPolicy(lambda: 0.0))
child.start()
signal.pause()
"""


def test_a_child_dies_with_its_parent_and_begins_clean():
    """Killed with -9, a parent can tell nobody: the kernel has to."""
    settings = {"OSTRAKA_STANDBY": "true", "OSTRAKA_CONFIG": "/none", "OSTRAKA_API_KEYS": "k"}
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, env=os.environ | settings) as parent:
        try:
            said = json.loads(parent.stdout.readline())
            child = psutil.Process(said["pid"])
            assert child.ppid() == parent.pid
        finally:
            parent.kill()
    wait_until(lambda: is_dead(child))
    clean = {"group": child.pid, "blocked": 0, "ignores_hangup": True, "stdin": "", "threads": "1", "telemetry": "1"}
    clean["settings"] = ["OSTRAKA_API_KEYS"]
    assert said == {"pid": child.pid, **clean}


UNSAFE = """
from ostraka import children
from ostraka.restarts import RestartPolicy
from ostraka_shared import process_control
class Refusing:
    def prctl(self, *_):
        return -1
process_control._libc = Refusing()
child = children.Child("c", lambda incarnation: ["-c", "print('it runs')"], RestartPolicy(lambda: 0.0))
child.start()
print(child.process.wait(20))
"""


def test_a_child_that_might_outlive_us_is_not_started():
    done = subprocess.run([sys.executable, "-c", UNSAFE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"
    assert "PR_SET_PDEATHSIG" in done.stderr
