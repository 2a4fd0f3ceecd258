"""Requests made from the OpenAPI document, right and wrong ones: each answer is one the document tells of."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.cluster import Cluster

CONFIG = Path(__file__).with_name("schemathesis.toml")


def run_schemathesis(document: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "schemathesis.cli", f"--config-file={CONFIG}", "run", document, "--seed=1"]
    return subprocess.run(
        [*command, "--generation-database=none", "--no-color", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


@pytest.mark.timeout(300)  # 20 s where nothing else runs
def test_the_server_does_what_the_document_says(served: Cluster, tmp_path: Path) -> None:
    options = ("--max-examples=60", "--exclude-path-regex=^/(systemone|api/)")  # but for paths that are others' aliases
    run = run_schemathesis(f"{served.url}/openapi.json", tmp_path, *options)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Fuzzing" in run.stdout


def test_a_document_that_says_less_is_found_out(served: Cluster, tmp_path: Path) -> None:
    """The control: the same run can fail."""
    document = served.client.get("/openapi.json").json()
    del document["paths"]["/v1/systemone"]["post"]["responses"]["422"]
    (tmp_path / "less.json").write_text(json.dumps(document), encoding="utf-8")
    options = (f"--url={served.url}", "--include-path=/v1/systemone", "--phases=coverage", "--max-examples=5")
    run = run_schemathesis("less.json", tmp_path, *options)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "Undocumented status code" in run.stdout


def close(schema: Any) -> Any:
    """The same, but no object may hold more than it says."""
    if isinstance(schema, list):
        return [close(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: close(value) for name, value in schema.items() if name != "discriminator"}
    return {"additionalProperties": False} | closed if "properties" in schema else closed


def check_response(document: dict[str, Any], path: str, response: httpx.Response) -> None:
    (operation,) = document["paths"][path].values()
    described = operation["responses"][str(response.status_code)]
    if "$ref" in described:
        described = document["components"]["responses"][described["$ref"].rpartition("/")[2]]
    schema = described["content"]["application/json"]["schema"]
    components = close(document["components"])
    jsonschema.Draft202012Validator(schema | {"components": components}).validate(response.json())
    assert {name.lower() for name in described["headers"]} - {"retry-after", "retry-after-ms"} <= set(response.headers)


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/decisions"])
def test_its_examples_are_answered_as_it_says(served: Cluster, path: str) -> None:
    document = served.client.get("/openapi.json").json()
    for example in document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"].values():
        response = served.client.post(path, json=example["value"])
        assert response.status_code == 200
        check_response(document, path, response)


@pytest.mark.parametrize("state", ["<fail>", None, "x" * 20_000])
@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/decisions"])
def test_refusals_are_as_it_says(served: Cluster, path: str, state: str | None) -> None:
    document = served.client.get("/openapi.json").json()
    asked = [{"state": state, "questions": {"q": {"type": "noul"}}}]
    if path == "/v1/decisions":
        asked.append({"input": state, "questions": [{"type": "predicate", "instructions": "So?"}]})
    for body in asked:
        response = served.client.post(path, json=body)
        assert response.status_code in {400, 422, 500}
        check_response(document, path, response)


def test_pages_hold_what_it_says_and_no_more(served: Cluster) -> None:
    document = served.client.get("/openapi.json").json()
    pages = [path for path, methods in document["paths"].items() if "get" in methods and path != "/metrics"]
    assert {"/health", "/livez", "/readyz", "/v1/models"} <= set(pages)
    for path in pages:
        check_response(document, path, served.client.get(path))
