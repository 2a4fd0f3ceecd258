"""The model as the gateway knows it: a name, a prompt contract, a tokenizer. From a body's bytes to tokens, and from
P(yes) to the answer's bytes. `ostraka decide` takes the same way, so its bytes are the server's."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from ostraka_gateway.answers import encode_response
from ostraka_gateway.prompts import TokenizedRequest, render, tokenize
from ostraka_gateway.schemas import SystemOneRequest, parse_request
from ostraka_shared.errors import ModelDamaged, UnknownModel
from ostraka_shared.model_folder import ModelFolder

ALIAS_PREFIXES = ("jev-", "typesafe/jev-", "~typesafe/jev-")
"""Clients of the hosted API, and of those who resell it, name its models; the served one answers."""


class ServedModel:
    """Thread-safe: nothing is changed after construction. Raises ModelDamaged where the tokenizer cannot be read."""

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.name = folder.spec.name
        try:
            self._tokenizer = Tokenizer.from_file(str(folder.tokenizer))
        except Exception as bad:  # the package raises bare Exception
            raise ModelDamaged(f"{folder.tokenizer} is not a tokenizer ({bad}): build the model again") from bad

    def parse(self, body: bytes) -> SystemOneRequest:
        """Raises pydantic's ValidationError, or UnknownModel."""
        request = parse_request(body)
        if request.model != self.name and not request.model.startswith(ALIAS_PREFIXES):
            raise UnknownModel(f"this server serves {self.name!r}; send that name or jev-latest", loc=("body", "model"))
        return request

    def tokenize(self, request: SystemOneRequest) -> TokenizedRequest:
        """Raises PromptTooLong."""
        spec = self.folder.spec
        return tokenize(self._tokenizer, render(request, spec.contract), spec.context_tokens)

    def respond(self, request: SystemOneRequest, tokens: TokenizedRequest, p_yes: Sequence[float]) -> bytes:
        return encode_response(request, self.name, p_yes, tokens.input_tokens)
