"""The sample requests in examples/, which the README's commands name, are requests."""

from pathlib import Path

import pytest

from ostraka_gateway.schemas import parse_request

EXAMPLES = Path(__file__).parents[3] / "examples"
BODIES = [
    (EXAMPLES / "request.json").read_bytes(),
    *(EXAMPLES / "requests.jsonl").read_bytes().splitlines(),
]


@pytest.mark.parametrize("body", BODIES)
def test_each_is_a_request(body):
    assert parse_request(body).questions
