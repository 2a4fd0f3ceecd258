"""A checkpoint's vocabulary as a tokenizer, so that text becomes the same ids as where the model was trained."""

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from ostraka_shared.errors import SourceRefused, UnknownArchitecture
from ostraka_worker.build.checkpoint import Vocabulary


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Special pieces are found in the text itself: encoding with add_special_tokens=False parses them."""
    ids = {piece: token_id for token_id, piece in enumerate(vocabulary.pieces)}
    for left, right in vocabulary.merges:
        if not {left, right, left + right} <= ids.keys():
            raise SourceRefused(f"the vocabulary merges {left!r} and {right!r} without having them and their sum")
    tokenizer = Tokenizer(BPE(vocab=ids, merges=list(vocabulary.merges)))
    # The attribute's stub knows the getter only.
    tokenizer.pre_tokenizer = _pre_tokenizer(vocabulary.pre)
    tokenizer.decoder = decoders.ByteLevel()
    specials = sorted(vocabulary.special, key=ids.__getitem__)
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in specials])
    return tokenizer


def single_token(tokenizer: Tokenizer, text: str) -> int:
    """The id of an answer's text. Raises SourceRefused where it is not exactly one token."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    if len(ids) != 1:
        raise SourceRefused(f"the answer {text!r} is {len(ids)} tokens in this vocabulary: an answer must be one")
    return ids[0]


def _pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    if pre != "smollm":
        raise UnknownArchitecture(
            f"cannot build a model whose text is split the {pre!r} way: only 'smollm' is supported"
        )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
