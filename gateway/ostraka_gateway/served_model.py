"""The model as the gateway knows it: a name, a prompt contract, a tokenizer."""

from tokenizers import Tokenizer

from ostraka_gateway.prompts import TokenizedRequest, render, tokenize
from ostraka_gateway.schemas import SystemOneRequest
from ostraka_shared.errors import InvalidRequest, ModelDamaged
from ostraka_shared.model_folder import ModelFolder

REQUEST_CHARS_MAX = 4_000_000
"""Of all prompts of a request together: about a million tokens, more than sixty workers read before a deadline. A body
of two megabytes could ask for a quarter of a million prompts over one long state; this is told before tokenizing."""


class ServedModel:
    """Thread-safe: nothing is changed after construction. Raises ModelDamaged where the tokenizer cannot be read."""

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.name = folder.spec.name
        try:
            self._tokenizer = Tokenizer.from_file(str(folder.tokenizer))
        except Exception as bad:  # the package raises bare Exception
            raise ModelDamaged(f"{folder.tokenizer} is not a tokenizer ({bad}): build the model again") from bad

    def tokenize(self, request: SystemOneRequest) -> TokenizedRequest:
        """Raises PromptTooLong, or InvalidRequest where the prompts together are too much."""
        spec = self.folder.spec
        rendered = render(request, spec.contract)
        if rendered.chars > REQUEST_CHARS_MAX:
            raise InvalidRequest(
                f"the questions make {rendered.prompt_count} prompts of {rendered.chars} characters together; at most "
                f"{REQUEST_CHARS_MAX} in one request: send fewer questions at a time",
                loc=("body", "questions"),
                kind="too_long",
            )
        return tokenize(self._tokenizer, rendered, spec.context_tokens)
