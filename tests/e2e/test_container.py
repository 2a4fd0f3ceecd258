"""The shipped Dockerfile and compose file, built and run on this machine's Docker engine."""

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]  # the first build fetches the packages and builds the model

COMPOSE_FILE = Path(__file__).parents[2] / "deploy" / "compose.yaml"
BASE_IMAGE = "python:3.11-slim"
IMAGE = "ostraka-e2e"
WAIT_S = 120.0
SETTINGS = {"OSTRAKA_IMAGE": IMAGE, "OSTRAKA_PUBLISH": "127.0.0.1:"}  # a free port of the host's choosing
NOUL = {"type": "noul", "instructions": "Does the customer want money back?"}
REQUEST = {
    "model": "jev-latest",
    "state": "I was charged twice for one order. Please refund the second payment.",
    "questions": {
        "refund": NOUL,
        "team": {"type": "choice", "instructions": "Who answers this?", "criteria": {"billing": None, "sales": None}},
        "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "furious"]},
    },
}


def docker(*args: str, **settings: str) -> str:
    done = subprocess.run(
        ["docker", *args], capture_output=True, text=True, check=False, env=os.environ | SETTINGS | settings
    )
    assert done.returncode == 0, f"docker {' '.join(args)}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout.strip()


def compose(*args: str, **settings: str) -> str:
    return docker("compose", "--project-name", IMAGE, "--file", str(COMPOSE_FILE), *args, **settings)


@dataclass(frozen=True)
class Stack:
    """A running server, asked from the host."""

    port: int
    key: str = "any-word"

    def call(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"authorization": f"Bearer {self.key}", "x-deadline-ms": "60000"}
            headers |= {"content-type": "application/json"}
            connection.request(method, path, content and json.dumps(content), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def ask(self, content: Any = REQUEST) -> tuple[int, Any]:
        return self.call("POST", "/v1/systemone", content)

    def health(self) -> dict[str, Any]:
        return self.call("GET", "/health")[1]

    def python(self, code: str) -> str:
        """Run inside, as the server's user."""
        return compose("exec", "-T", "ostraka", "python", "-c", code)


def start(**settings: str) -> Stack:
    try:
        compose("up", "--detach", "--wait", "--wait-timeout", "180", **settings)
    except AssertionError as bad:
        bad.add_note(compose("logs", "--tail", "30"))
        raise
    return find()


def find() -> Stack:
    return Stack(int(compose("port", "ostraka", "8017").rpartition(":")[2]))


def container() -> dict[str, Any]:
    return json.loads(docker("inspect", compose("ps", "--all", "--quiet", "ostraka")))[0]


def what_is_missing() -> str | None:
    def works(*args: str) -> bool:
        return subprocess.run(["docker", *args], capture_output=True, check=False).returncode == 0

    if shutil.which("docker") is None or not works("info"):
        return "no running Docker engine: neither DOCKER_HOST nor /var/run/docker.sock leads to one"
    if not works("compose", "version"):
        return "the docker command has no compose plugin"
    if not works("image", "inspect", BASE_IMAGE) and not works("pull", BASE_IMAGE):
        return f"the base image {BASE_IMAGE} is not here and cannot be pulled"
    return None


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if reason := what_is_missing():
        pytest.skip(reason)
    compose("build")
    yield IMAGE
    compose("down", "--volumes", "--timeout", "40")


@pytest.fixture
def stack(image: str) -> Stack:
    return start()


def test_all_three_kinds_of_question_are_answered(stack: Stack) -> None:
    status, content = stack.ask()
    assert status == 200, content
    assert {name: answer["type"] for name, answer in content["answers"].items()} == {
        "refund": "noul",
        "team": "choice",
        "anger": "score",
    }


def test_runs_without_any_privilege(stack: Stack) -> None:
    status = dict(line.split(":\t", 1) for line in stack.python("print(open('/proc/1/status').read())").splitlines())
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"10017"}
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"


def test_root_is_read_only_but_for_the_temporary_files(stack: Stack) -> None:
    attempt = (
        "import errno, tempfile\ntry: open({} + '/x', 'w')\nexcept OSError as bad: print(errno.errorcode[bad.errno])"
    )
    for folder in ("''", "'/opt/model'", "'/opt/ostraka'", "'/var/log'"):
        assert stack.python(attempt.format(folder)) == "EROFS"
    assert stack.python(attempt.format("tempfile.gettempdir()") + "\nelse: print('written')") == "written"


def test_only_loopback_is_published(stack: Stack) -> None:
    published = container()["NetworkSettings"]["Ports"]["8017/tcp"]
    assert [binding["HostIp"] for binding in published] == ["127.0.0.1"]


def test_the_engine_sees_its_health(stack: Stack) -> None:
    assert container()["State"]["Health"]["Status"] == "healthy"


def test_image_holds_the_model_and_not_what_it_was_built_from(stack: Stack) -> None:
    walk = (
        "import os; print(*(d + '/' + f for top in ('/opt', '/var', '/root') for d, _, fs in os.walk(top) for f in fs))"
    )
    files = stack.python(walk).split()
    assert "/opt/model/model.onnx" in files
    assert [file for file in files if file.endswith((".gguf", ".whl"))] == []


def test_needs_no_network(image: str) -> None:
    flags = ["--network=none", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--health-interval=1s"]
    name = docker("run", "--detach", *flags, image)
    try:
        wait_until(lambda: docker("inspect", "-f", "{{.State.Health.Status}}", name) == "healthy", WAIT_S)
    finally:
        docker("rm", "--force", name)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"OSTRAKA_CPUS": "1.5"}, id="a quota, rounded down, on cores that others see too: not pinned"),
        pytest.param({"OSTRAKA_CPUSET": "0"}, id="a core of our own"),
    ],
)
def test_limits_decide_the_workers(image: str, settings: dict[str, str]) -> None:
    stack = start(**settings)
    allowed = stack.python("import os; print(*sorted(os.sched_getaffinity(0)))")
    assert [worker["cores"] for worker in stack.health()["workers"]] == [[int(cpu) for cpu in allowed.split()]]
    assert stack.ask()[0] == 200


def test_no_request_is_lost_when_a_worker_is_killed(stack: Stack) -> None:
    victim = stack.health()["workers"][0]
    with ThreadPoolExecutor(4) as clients:
        answers = [clients.submit(stack.ask) for _ in range(30)]
        wait_until(lambda: sum(answer.done() for answer in answers) >= 5, WAIT_S)
        stack.python(f"import os; os.kill({victim['pid']}, 9)")
        failed = [answer.result() for answer in answers if answer.result()[0] != 200]
    assert not failed

    def is_replaced() -> bool:
        workers = {worker["worker"]: worker for worker in stack.health()["workers"]}
        successor = workers.get(victim["worker"], victim)
        return successor["pid"] != victim["pid"] and successor["state"] == "ready"

    wait_until(is_replaced, WAIT_S)


def test_the_key_in_the_environment_is_asked_for(image: str) -> None:
    stack = start(JEV_API_KEY="open-sesame")
    assert stack.ask()[0] == 401
    assert replace(stack, key="open-sesame").ask()[0] == 200


def test_serves_again_after_a_restart(stack: Stack) -> None:
    compose("restart")
    wait_until(lambda: container()["State"]["Health"]["Status"] == "healthy", WAIT_S)
    assert find().ask()[0] == 200


def test_stop_answers_what_was_accepted_and_exits_cleanly(stack: Stack) -> None:
    long = REQUEST | {"questions": {f"q{n}": NOUL | {"instructions": f"Is it about order {n}?"} for n in range(60)}}
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(stack.ask, long)
        wait_until(lambda: stack.health()["in_flight_requests"] > 0, WAIT_S)
        compose("stop")
        status, content = answer.result()
    exit_code = container()["State"]["ExitCode"]
    compose("down")  # started again, it would for a moment show the health it had when it stopped
    assert status == 200, content
    assert len(content["answers"]) == 60
    assert exit_code == 0
