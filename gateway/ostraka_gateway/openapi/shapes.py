"""What the server sends, as schemas of the document. Nothing is built from these: answers are written as bytes."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class NoulAnswer(BaseModel):
    type: Literal["noul"]
    noul: Annotated[Probability, Field(description="How likely the answer is yes")]


class ChoiceAnswer(BaseModel):
    type: Literal["choice"]
    choice: Annotated[str, Field(description="The likeliest option; of equals the first")]
    probabilities: Annotated[dict[str, Probability], Field(description="Of each option, in their order")]
    confidence: Probability


class ScoreAnswer(BaseModel):
    type: Literal["score"]
    score: Annotated[float, Field(ge=0, description="The expected level, counted from 0")]
    legend: Annotated[dict[str, str | dict[str, object] | list[object]], Field(description="Each level as it was sent")]
    probabilities: Annotated[dict[str, Probability], Field(description="Of each level, lowest first")]
    confidence: Probability


class Usage(BaseModel):
    input_tokens: Count
    output_tokens: Count


class SystemOneResponse(BaseModel):
    model: str
    answers: dict[str, Annotated[NoulAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]]
    usage: Usage


class PredicateAnswer(BaseModel):
    type: Literal["predicate"]
    name: str | None
    probability: Probability


class ValueProbability(BaseModel):
    value: str | bool
    probability: Probability


class DecisionsChoiceAnswer(BaseModel):
    type: Literal["choice"]
    name: str | None
    choice: str | bool
    confidence: Probability
    probabilities: list[ValueProbability]


class LevelProbability(BaseModel):
    value: Count
    label: str
    probability: Probability


class DecisionsScoreAnswer(BaseModel):
    type: Literal["score"]
    name: str | None
    score: Annotated[float, Field(ge=0)]
    confidence: Probability
    probabilities: list[LevelProbability]


class InputTokensDetails(BaseModel):
    cached_tokens: Count
    cache_write_tokens: Count


class OutputTokensDetails(BaseModel):
    reasoning_tokens: Count


class DecisionsUsage(BaseModel):
    input_tokens: Count
    input_tokens_details: InputTokensDetails
    output_tokens: Count
    output_tokens_details: OutputTokensDetails
    total_tokens: Count


class DecisionsResponse(BaseModel):
    model: str
    answers: list[
        Annotated[PredicateAnswer | DecisionsChoiceAnswer | DecisionsScoreAnswer, Field(discriminator="type")]
    ]
    usage: DecisionsUsage


class Fault(BaseModel):
    loc: Annotated[list[str | int], Field(description='Where: "body" or "header", then the path')]
    msg: str
    type: str


class InvalidProblem(BaseModel):
    detail: list[Fault]


class ProblemDetail(BaseModel):
    error_type: str
    message: str


class Problem(BaseModel):
    detail: ProblemDetail


class DecisionsError(BaseModel):
    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "authentication_error", "server_error"]
    param: Annotated[str | None, Field(description="The path in the body, as questions[0].choices[1]")]
    code: str


class DecisionsProblem(BaseModel):
    error: DecisionsError


class TypesafeModel(BaseModel):
    name: str
    description: str
    release_date: Annotated[str, Field(json_schema_extra={"format": "date"})]


class OpenaiModel(BaseModel):
    id: str
    object: Literal["model"]
    created: Count
    owned_by: str


class ModelList(BaseModel):
    """The same models twice: for TypeSafe's clients, and for OpenAI's."""

    models: list[TypesafeModel]
    object: Literal["list"]
    data: list[OpenaiModel]


class Alive(BaseModel):
    status: Literal["alive"]


ClusterState = Literal["starting", "ready", "draining"]


class Readiness(BaseModel):
    status: ClusterState
    ready_workers: Count


class StateSnapshots(BaseModel):
    """Of all workers together."""

    kept: Count
    max: Count
    tokens: Count
    max_tokens: Count
    hits: Count
    misses: Count
    reused_tokens: Count
    bytes: Count


class EngineHealth(BaseModel):
    runtime: str
    version: str
    device: Literal["cpu"]
    model_dir: str
    precision: str
    state_snapshots: StateSnapshots
    batched_requests: Count


class CallCost(BaseModel):
    call_ms: Annotated[float, Field(ge=0)]
    token_us: Annotated[float, Field(ge=0)]
    token2_ns: Annotated[float, Field(ge=0)]


class WorkerHealth(BaseModel):
    worker: str
    state: Literal["starting", "ready", "suspect", "draining"]
    pid: int
    cores: list[int]
    restarts: Count
    in_flight_requests: Count
    in_flight_tokens: Count
    running_tokens: Count
    tokens_per_s: Annotated[float, Field(ge=0)]
    call_cost: CallCost
    batches_done: Count
    rss_bytes: Count


class GatewayHealth(BaseModel):
    gateway: str
    state: ClusterState
    pid: int
    ready_workers: Count
    queued_requests: Count
    in_flight_requests: Count


class SilentGateway(BaseModel):
    """It did not answer in time: its requests are missing in the sums."""

    gateway: str
    state: Literal["silent"]


class Health(BaseModel):
    status: ClusterState
    model: str
    model_files: dict[str, str]
    fingerprint: str
    engine: EngineHealth
    queued_requests: Count
    queued_tokens: Count
    in_flight_requests: Count
    tokens_per_s: Annotated[float, Field(ge=0)]
    gateways: list[GatewayHealth | SilentGateway]
    wanted_workers: Count | None
    degraded: list[str]
    workers: list[WorkerHealth]
