import signal
import socket
import subprocess
import sys

import pytest

from ostraka.answerers import Outcome, Server


class Echo(Server):
    """Answers a body with itself; `bad` is a fault of ours."""

    def _ask(self, body):
        if body == b"bad":
            raise ZeroDivisionError
        return Outcome(body, is_answer=True)


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_outcomes_keep_the_order_of_their_bodies(concurrency):
    bodies = [str(number).encode() for number in range(40)]
    server = Echo("http://127.0.0.1:1", concurrency, None)
    assert [outcome.body for outcome in server.answer(bodies)] == bodies


def test_a_fault_in_a_thread_is_raised_where_the_outcome_is_waited_for():
    outcomes = Echo("http://127.0.0.1:1", 2, None).answer([b"good", b"bad", b"good"])
    assert next(outcomes).body == b"good"
    with pytest.raises(ZeroDivisionError):
        next(outcomes)


def test_ctrl_c_does_not_wait_for_a_server_that_does_not_answer(tmp_path):
    requests = tmp_path / "requests.jsonl"
    requests.write_text("{}\n" * 40)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "ostraka", "decide", str(requests), f"--server={url}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as running:
            client, _ = listener.accept()
            with client:
                assert client.recv(10) == b"POST /v1/s"
                running.send_signal(signal.SIGINT)
                assert running.wait(20) == 130
            assert running.stderr.read() == b""
