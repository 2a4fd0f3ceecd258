"""The model as the gateway knows it: a name, a prompt contract, a tokenizer."""

from tokenizers import Tokenizer

from ostraka_gateway.limits import DEFAULT_LIMITS, Limits
from ostraka_gateway.prompts import indented_chars, render
from ostraka_gateway.schemas import SystemOneRequest, Text
from ostraka_gateway.tokenization import PromptTokenizer, TokenizedRequest
from ostraka_shared.errors import InvalidRequest, ModelDamaged, PromptTooLong
from ostraka_shared.front_files import read_verified
from ostraka_shared.model_folder import TOKENIZER_FILE, ModelFolder


class ServedModel:
    """Thread-safe: nothing is changed after construction. Raises ModelDamaged where the tokenizer was altered, or
    cannot be used."""

    def __init__(self, folder: ModelFolder, limits: Limits = DEFAULT_LIMITS, name: str | None = None) -> None:
        self.folder = folder
        self.limits = limits
        self.name = name or folder.spec.name
        content = read_verified(folder.tokenizer, folder.hashes[TOKENIZER_FILE])  # another one asks other questions
        try:
            tokenizer = Tokenizer.from_buffer(content)
        except Exception as bad:  # the package raises bare Exception
            raise ModelDamaged(f"{folder.tokenizer} is not a tokenizer ({bad}): build the model again") from bad
        self._tokenizer = PromptTokenizer(tokenizer, folder.spec.contract)

    def tokenize(self, request: SystemOneRequest) -> TokenizedRequest:
        """Raises PromptTooLong, or InvalidRequest where the prompts together are too much."""
        spec = self.folder.spec
        if request.prompt_count > self.limits.request_prompts:
            raise _too_much(f"{request.prompt_count} prompts", self.limits.request_prompts)
        _check_state(request.state, self.limits.request_chars)
        rendered = render(request, spec.contract)
        if rendered.chars > self.limits.request_chars:
            # Where already the first is too long, that is what helps; and jev says so.
            self._tokenizer.tokenize(rendered.first(), spec.context_tokens)
            asked = f"{rendered.prompt_count} prompts of {rendered.chars} characters together"
            raise _too_much(asked, self.limits.request_chars)
        return self._tokenizer.tokenize(rendered, spec.context_tokens)


def _check_state(state: Text, most: int) -> None:
    """Its indentation may be a hundred times as long as what was sent."""
    if not isinstance(state, str) and (chars := indented_chars(state)) > most:
        raise PromptTooLong(
            f"the state has {chars} characters as the model reads it, a line a value; at most {most} are read",
            loc=("body", "state"),
            kind="prompt_too_long",
        )


def _too_much(asked: str, most: int) -> InvalidRequest:
    return InvalidRequest(
        f"the questions make {asked}; at most {most} in one request: send fewer questions at a time",
        loc=("body", "questions"),
        kind="too_long",
    )
