"""A checkpoint's vocabulary as a tokenizer, so that text becomes the same ids as where the model was trained."""

from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from ostraka_shared.errors import SourceRefused, UnknownArchitecture

# How llama 3 splits text, but for its digits.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class Splitting:
    """What happens to text before pieces are merged: the patterns that cut it, one after the other.

    `takes_whole`: a cut that is itself a piece is not merged up to. `has_bos`: the GGUF converter names an id in any
    case; qwen's is its end of text, which its own tokenizer never begins with.
    """

    patterns: tuple[str, ...]
    takes_whole: bool = False
    composes: bool = False
    has_bos: bool = True


# By the GGUF's own names. llama.cpp does not compose qwen's accents (NFC); the tokenizer it was trained with does.
SPLITTINGS = {
    "smollm": Splitting((r"\p{N}", _GPT2)),
    "llama-bpe": Splitting((_WORDS.format(digits=r"\p{N}{1,3}"),), takes_whole=True),
    "minicpm5": Splitting((r"\p{N}{1,3}", _WORDS.format(digits=r"\p{N}+")), takes_whole=True),
    "qwen2": Splitting((_WORDS.format(digits=r"\p{N}"),), composes=True, has_bos=False),
}


@dataclass(frozen=True, slots=True)
class BpeVocabulary:
    """A byte-level BPE vocabulary. `special` are the pieces found whole in text; `pre` is a name of SPLITTINGS."""

    pre: str
    pieces: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    special: frozenset[str]
    bos: str


@dataclass(frozen=True, slots=True)
class TokenizerText:
    """The content of a tokenizer.json; `size` is how many ids the model has."""

    text: str
    bos: str
    size: int


Vocabulary = BpeVocabulary | TokenizerText


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Special pieces are found in the text itself: encoding with add_special_tokens=False parses them."""
    tokenizer = _parse(vocabulary) if isinstance(vocabulary, TokenizerText) else _from_pieces(vocabulary)
    if vocabulary.bos:
        single_token(tokenizer, vocabulary.bos, "the token that begins a text")
    return tokenizer


def single_token(tokenizer: Tokenizer, text: str, what: str = "an answer") -> int:
    """The id of a text that must be one token. Raises SourceRefused."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    if len(ids) != 1:
        raise SourceRefused(f"{what} must be one token, and {text!r} is {len(ids)} in this vocabulary: choose another")
    return ids[0]


def splitting(pre: str) -> Splitting:
    if pre not in SPLITTINGS:
        raise UnknownArchitecture(
            f"cannot build a model whose text is split the {pre!r} way: only {', '.join(SPLITTINGS)} are supported"
        )
    return SPLITTINGS[pre]


def _parse(vocabulary: TokenizerText) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(vocabulary.text)
    except Exception as bad:  # the package raises bare Exception
        raise SourceRefused(f"tokenizer.json is not a tokenizer ({bad}): fetch it again") from bad
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= vocabulary.size:
        raise SourceRefused(
            f"tokenizer.json has the id {largest}, the model {vocabulary.size} ids: they are not of the same checkpoint"
        )
    # Either would be applied to every prompt: cut or filled up, it is no longer what was asked.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _from_pieces(vocabulary: BpeVocabulary) -> Tokenizer:
    ids = {piece: token_id for token_id, piece in enumerate(vocabulary.pieces)}
    for left, right in vocabulary.merges:
        if not {left, right, left + right} <= ids.keys():
            raise SourceRefused(f"the vocabulary merges {left!r} and {right!r} without having them and their sum")
    how = splitting(vocabulary.pre)
    tokenizer = Tokenizer(BPE(vocab=ids, merges=list(vocabulary.merges), ignore_merges=how.takes_whole))
    if how.composes:
        tokenizer.normalizer = normalizers.NFC()
    cuts: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in how.patterns
    ]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    specials = sorted(vocabulary.special, key=ids.__getitem__)
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in specials])
    return tokenizer
