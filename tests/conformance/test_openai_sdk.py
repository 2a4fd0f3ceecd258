"""OpenAI's own Python package against the server: decisions, their errors, the list of models."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from typesafe_sdk import TypeSafeClient

from tests.cluster import Cluster

QUESTIONS = [
    {"type": "predicate", "name": "late", "instructions": "The parcel is late."},
    {"type": "choice", "name": "team", "instructions": "Who?", "choices": [{"value": "billing"}, {"value": True}]},
    {
        "type": "score",
        "instructions": [{"type": "input_text", "text": "How upset?"}],
        "levels": [{"label": "calm"}, {"label": "furious", "description": "shouts"}],
    },
    {"type": "predicate", "name": "late", "instructions": "The parcel is late."},
]
CONVERSATION = [
    {"role": "developer", "content": "Answer as support does."},
    {"type": "message", "role": "user", "content": [{"type": "input_json", "data": {"order": 7}}]},
    {"type": "function_call", "call_id": "c1", "name": "find_order", "arguments": '{"order": 7}'},
    {"type": "function_call_output", "call_id": "c1", "output": '{"days_late": 4}'},
    {"role": "assistant", "content": [{"type": "output_text", "text": "It is late."}], "phase": "final_answer"},
]


def connect(cluster: Cluster, **settings) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{cluster.url}/v1", api_key="any", max_retries=0, **settings)


@pytest.fixture(scope="module")
def client(served: Cluster) -> Iterator[openai.OpenAI]:
    with connect(served) as found:
        yield found


def decide(client: openai.OpenAI, given="It is four days late.", questions=QUESTIONS, **options):
    return client.decisions.create(model="jev-latest", input=given, questions=questions, **options)


def test_each_kind_is_answered_in_order(client: openai.OpenAI) -> None:
    decision = decide(client)
    assert decision.model == "fake-model"
    late, team, anger, again = decision.answers
    assert (late.type, late.name, late) == ("predicate", "late", again)
    assert 0 <= late.probability <= 1
    assert [weight.value for weight in team.probabilities] == ["billing", True]
    assert team.choice == max(team.probabilities, key=lambda weight: weight.probability).value
    assert sum(weight.probability for weight in team.probabilities) == pytest.approx(1)
    assert [(weight.value, weight.label) for weight in anger.probabilities] == [(0, "calm"), (1, "furious")]
    assert (anger.name, anger.score) == (None, pytest.approx(anger.probabilities[1].probability))
    assert decision.usage.total_tokens == decision.usage.input_tokens > 100


def test_the_answers_are_system_ones(client: openai.OpenAI, served: Cluster) -> None:
    questions = {
        "late": {"type": "noul", "instructions": "The parcel is late."},
        "team": {"type": "choice", "instructions": "Who?", "criteria": {"billing": None, "true": None}},
        "anger": {"type": "score", "instructions": "How upset?", "criteria": ["calm", "furious: shouts"]},
    }
    decision = decide(client)
    for path in ("/v1/systemone", "/v1/decisions"):
        body = {"model": "jev-latest", "state": "It is four days late.", "questions": questions}
        answers = served.client.post(path, json=body).json()["answers"]
        assert decision.answers[0].probability == answers["late"]["noul"]
        assert decision.answers[1].confidence == answers["team"]["confidence"]
        assert decision.answers[2].score == answers["anger"]["score"]


def test_conversations_are_read(client: openai.OpenAI) -> None:
    short = decide(client, CONVERSATION[:1])
    assert decide(client, CONVERSATION).usage.input_tokens > short.usage.input_tokens
    plain, message = decide(client, "Hi"), decide(client, [{"role": "user", "content": "Hi"}])
    assert plain == message


def test_cache_options_are_taken_and_ignored(client: openai.OpenAI) -> None:
    options = {"mode": "explicit", "ttl": "30m"}
    told = decide(client, prompt_cache_key="k", safety_identifier="u", prompt_cache_options=options)
    assert told == decide(client)


@pytest.mark.parametrize(
    ("asked", "kind", "code", "param"),
    [
        ({"questions": []}, openai.BadRequestError, "too_short", "questions"),
        ({"questions": QUESTIONS[:1] * 401}, openai.BadRequestError, "too_long", "questions"),
        (
            {
                "given": [
                    {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]}
                ]
            },
            openai.BadRequestError,
            "union_tag_invalid",
            "input[0].content[0]",
        ),
        ({"given": "x" * 20_000}, openai.BadRequestError, "context_length_exceeded", "questions[0]"),
        ({"extra_body": {"model": "gpt-5"}}, openai.NotFoundError, "model_not_found", "model"),
        ({"given": "<fail>"}, openai.InternalServerError, "engine_failed", None),
    ],
)
def test_refusals_are_openais(client: openai.OpenAI, asked, kind, code, param) -> None:
    with pytest.raises(kind) as caught:
        decide(client, **asked)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert caught.value.body["message"]
    assert caught.value.response.headers["x-typesafe-request-id"]


def test_a_timeout_keeps_its_status_and_form(cluster: Cluster, release: Path) -> None:
    with connect(cluster) as client, pytest.raises(openai.InternalServerError) as caught:
        decide(client, "<stall>", extra_headers={"x-deadline-ms": "300"})
    release.touch()
    assert (caught.value.status_code, caught.value.code) == (504, "deadline_exceeded")


def test_async_client(served: Cluster) -> None:
    async def ask() -> openai.types.decision.Decision:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any") as client:
            return await client.decisions.create(model="jev-latest", input="x", questions=QUESTIONS)

    assert len(asyncio.run(ask()).answers) == len(QUESTIONS)


def test_both_sdks_list_the_models(client: openai.OpenAI, served: Cluster) -> None:
    listed = list(client.models.list())
    assert [(model.id, model.object, model.owned_by) for model in listed] == [
        ("fake-model", "model", "ostraka"),
        ("jev-latest", "model", "ostraka"),
    ]
    assert all(model.created > 1_700_000_000 for model in listed)
    with TypeSafeClient(base_url=served.url, api_key="any") as typesafe:
        models = typesafe.models.list().models
    assert [model.name for model in models] == ["fake-model", "jev-latest"]
    assert all(model.description and model.release_date for model in models)
