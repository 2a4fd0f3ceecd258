"""The error tree of gateway and worker. Every leaf has a stable `code`; only the gateway's `problems` knows HTTP.

OstrakaError
├── RequestError              the client's to mend
│   ├── InvalidRequest        a field is wrong; `loc` says which
│   ├── Unauthenticated       no key, or none of ours
│   ├── UnsupportedMediaType  the body is of a type, or encoded in a way, that is not read here
│   ├── UnknownTransferCoding the body is sent in a way that is not read here
│   ├── Unreadable            not HTTP, or an encoded body that is damaged or cut short
│   ├── HeadersTooLarge       more bytes before the body than any client sends
│   ├── BodyTooLarge          more bytes than any useful request has
│   ├── RequestTooSlow        the request did not arrive in the time it is given
│   ├── UnknownModel          the model named is not served
│   └── PromptTooLong         a prompt does not fit the model's context; nothing is ever cut
├── ServingError              ours; worth retrying unless it says otherwise
│   ├── RateLimited           the client is over its rate
│   ├── Overloaded            the queue is full
│   ├── TooManyConnections    more connections are open than this server keeps
│   ├── NoWorkerReady         no worker can take the request
│   ├── ClientLeft            nobody waits for the answer any more
│   ├── DeadlineExceeded      no answer in the time the client gave
│   ├── EngineFailed          the model call raised
│   ├── PoisonedRequest       two workers died while running it; never tried a third time
│   └── Draining              this server is leaving
├── Cancelled                 a gateway withdrew what it had sent a worker; no client ever sees it
├── WireError                 a frame that is not one of our messages; dropped and counted
├── ConfigError               a setting cannot work
└── ModelError                a model folder or its source
    ├── ModelMissing          there is no model folder there
    ├── ModelDamaged          a file is absent, altered or not what it says
    ├── SourceRefused         a download or checkpoint is not the expected one
    ├── UnknownArchitecture   a checkpoint of a family that cannot be built
    ├── CheckFailed           the built graph disagrees with the reference forward pass
    └── OutOfSpace            the disk is full
"""


class OstrakaError(Exception):
    """An error crosses the wire as `code` and message, never as an object."""

    code = "internal_error"


class RequestError(OstrakaError):
    code = "invalid_request"


class InvalidRequest(RequestError):
    """`loc` is the path of the offending value, as in FastAPI's 422: ("body", "questions", "q1", ...)."""

    def __init__(self, message: str, loc: tuple[str | int, ...] = ("body",), kind: str = "value_error") -> None:
        super().__init__(message)
        self.loc = loc
        self.kind = kind


class Unauthenticated(RequestError):
    code = "unauthenticated"


class UnsupportedMediaType(RequestError):
    """`accept_encoding`: the encodings that are taken, where it was the encoding."""

    code = "unsupported_media_type"

    def __init__(self, message: str, accept_encoding: str = "") -> None:
        super().__init__(message)
        self.accept_encoding = accept_encoding


class UnknownTransferCoding(RequestError):
    code = "unknown_transfer_coding"


class Unreadable(RequestError):
    code = "unreadable"


class HeadersTooLarge(RequestError):
    code = "headers_too_large"


class BodyTooLarge(RequestError):
    code = "body_too_large"


class RequestTooSlow(RequestError):
    code = "request_too_slow"


class UnknownModel(InvalidRequest):
    code = "unknown_model"


class PromptTooLong(InvalidRequest):
    code = "prompt_too_long"


class ServingError(OstrakaError):
    """`retry_after_s`: when a retry is likely to succeed; None where a retry would not help."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateLimited(ServingError):
    code = "rate_limited"


class Overloaded(ServingError):
    code = "overloaded"


class TooManyConnections(ServingError):
    code = "too_many_connections"


class NoWorkerReady(ServingError):
    code = "no_worker_ready"


class DeadlineExceeded(ServingError):
    code = "deadline_exceeded"


class ClientLeft(ServingError):
    code = "client_left"


class EngineFailed(ServingError):
    code = "engine_failed"


class PoisonedRequest(ServingError):
    code = "poisoned_request"


class Draining(ServingError):
    code = "draining"


class Cancelled(OstrakaError):
    code = "cancelled"


class WireError(OstrakaError):
    """`reason` is a metric label: garbage, oversize, unknown_kind, wrong_version, wrong_field or wrong_peer. `version`:
    the peer's, where that is all that is wrong."""

    code = "wire_error"

    def __init__(self, reason: str, message: str, version: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.version = version


class ConfigError(OstrakaError):
    code = "config_error"


class ModelError(OstrakaError):
    code = "model_error"


class ModelMissing(ModelError):
    code = "model_missing"


class ModelDamaged(ModelError):
    code = "model_damaged"


class SourceRefused(ModelError):
    code = "source_refused"


class UnknownArchitecture(ModelError):
    code = "unknown_architecture"


class CheckFailed(ModelError):
    code = "check_failed"


class OutOfSpace(ModelError):
    code = "out_of_space"
