"""Requests in files, and the command that answers them."""

import json
import subprocess
import sys


def body(state: object) -> bytes:
    return json.dumps({"model": "jev-latest", "state": state, "questions": {"q": {"type": "noul"}}}).encode()


def decide(*arguments: object, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ostraka", "decide", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False)
