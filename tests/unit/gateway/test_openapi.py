"""The document: as printed into docs/, valid, and its examples as the server's own models take them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from ostraka_gateway.limits import DEFAULT_LIMITS, Limits
from ostraka_gateway.openai_decisions.schemas import DecisionsRequest
from ostraka_gateway.openapi import examples, shapes
from ostraka_gateway.openapi.document import describe
from ostraka_gateway.schemas import SystemOneRequest

GOLDEN = Path(__file__).parents[3] / "docs" / "openapi.json"
DOCUMENT = describe("served", DEFAULT_LIMITS)
EXAMPLES = [
    (examples.SYSTEM_ONE_REQUESTS, SystemOneRequest),
    (examples.SYSTEM_ONE_RESPONSES, shapes.SystemOneResponse),
    (examples.DECISIONS_REQUESTS, DecisionsRequest),
    (examples.DECISIONS_RESPONSES, shapes.DecisionsResponse),
]


def test_it_is_the_one_in_docs():
    """Printed anew by `make openapi`."""
    printed = subprocess.run([sys.executable, "-m", "ostraka_gateway.openapi"], capture_output=True, check=True)
    assert printed.stdout.decode() == GOLDEN.read_text(encoding="utf-8")


def test_it_is_valid():
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_it_names_the_model_and_the_limits():
    schemas = describe("a.b", Limits(score_levels=4))["components"]["schemas"]
    pattern = schemas["SystemOneRequest"]["properties"]["model"]["pattern"]
    assert schemas["Score"]["properties"]["criteria"]["maxItems"] == 4
    assert r"a\.b$" in pattern


@pytest.mark.parametrize(("found", "model"), EXAMPLES)
def test_its_examples_are_of_its_schemas(found, model):
    for example in found.values():
        model.model_validate_json(json.dumps(example["value"]), strict=True)


def test_no_component_is_unused():
    written = json.dumps(DOCUMENT)
    for kind in ("schemas", "responses", "headers", "parameters"):
        for name in DOCUMENT["components"][kind]:
            assert f'"#/components/{kind}/{name}"' in written, name
