"""How the embedded model's build ends with the command that started it, and what a server says that cannot have one."""

import signal
import subprocess
import sys

import psutil
import pytest

from tests.stand_in import write_stand_in
from tests.waiting import is_dead, wait_until

DRIVER = """
import sys
from ostraka import __main__ as command, decide_command
sys.executable = sys.argv[1]
sys.exit(command.main(["decide", "-", "--lines", "--cache-dir", sys.argv[2]]))
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, -1), (signal.SIGKILL, -9)]
)
def test_however_the_command_ends_its_build_does_too_and_in_order(tmp_path, number, code):
    command = [sys.executable, "-c", DRIVER, write_stand_in(tmp_path, "signal.pause()"), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        building = psutil.Process(int(running.stderr.readline().split()[0]))
        assert building.ppid() == running.pid
        running.send_signal(number)
        assert running.stderr.read() == "its line\n"
        assert running.wait(20) == code
    wait_until(lambda: is_dead(building))


def test_a_server_that_is_told_both_does_not_start(fake_model):
    command = [sys.executable, "-m", "ostraka", "serve", "--port=0", f"--model={fake_model.path}", "--precision=int8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "ostraka: --precision int8 and --model " in done.stderr


def test_the_real_builders_line_is_the_only_one(tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "ostraka", "serve", "--port=0", f"--cache-dir={tmp_path / 'file' / 'cache'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"ostraka: --cache-dir (or OSTRAKA_CACHE_DIR) {tmp_path / 'file' / 'cache'}: ")
