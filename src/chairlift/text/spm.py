"""Builds the tokenizer of a SentencePiece BPE vocabulary from its pieces, scores and types.

SentencePiece keeps no list of merges: it joins the neighbours with the best score of the joined piece. Here that order
becomes a list of merges, best score first, for the tokenizer library. For .model files and GGUF files of that kind.
"""

import math

from tokenizers import AddedToken, Tokenizer, decoders, normalizers
from tokenizers.models import BPE

from chairlift.core.errors import InvalidConfig
from chairlift.text.sentencepiece_model import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, PieceModel

_SPACE = "\u2581"
_MAX_PIECE_CHARACTERS = 512  # the splits of a piece cost the square of its length


def build_spm(model: PieceModel) -> Tokenizer:
    _check(model)
    vocab = {piece: token_id for token_id, piece in enumerate(model.pieces)}
    unknown = next((p for p, kind in zip(model.pieces, model.types, strict=True) if kind == UNKNOWN), None)
    has_bytes = BYTE in model.types
    if unknown is None and not has_bytes:
        raise InvalidConfig("the SentencePiece vocabulary has neither an unknown token nor byte tokens")
    bpe = BPE(vocab=vocab, merges=_merges(model), unk_token=unknown, fuse_unk=True, byte_fallback=has_bytes)
    tokenizer = Tokenizer(bpe)
    escape_spaces(tokenizer, model.adds_prefix_space)
    # A piece with an escaped space is matched after escaping, by the merges.
    add_typed_tokens(tokenizer, model.pieces, model.types, without=_SPACE)
    return tokenizer


def escape_spaces(core: Tokenizer, adds_prefix_space: bool = False) -> None:
    """Spaces become characters of words, and back."""
    prefix = [normalizers.Prepend(_SPACE)] if adds_prefix_space else []
    core.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if adds_prefix_space else []
    core.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])


def add_typed_tokens(core: Tokenizer, tokens: list[str], types: list[int], without: str | None = None) -> None:
    """Control tokens, and user-defined ones that do not hold the character `without`."""
    kinds = list(zip(tokens, types, strict=True))
    special = [AddedToken(t, special=True, normalized=False) for t, kind in kinds if kind in (UNKNOWN, CONTROL)]
    core.add_special_tokens(special)
    plain = (t for t, kind in kinds if kind == USER_DEFINED and (without is None or without not in t))
    core.add_tokens([AddedToken(t, normalized=False) for t in plain])


def _check(model: PieceModel) -> None:
    if not len(model.pieces) == len(model.scores) == len(model.types):
        raise InvalidConfig("the SentencePiece vocabulary has unequal numbers of pieces, scores and types")
    if len(set(model.pieces)) != len(model.pieces):
        raise InvalidConfig("the SentencePiece vocabulary holds a piece twice")
    if not all(map(math.isfinite, model.scores)):
        raise InvalidConfig("the SentencePiece vocabulary has a score that is not a number")
    bad = next((kind for kind in model.types if not NORMAL <= kind <= BYTE), None)
    if bad is not None:
        raise InvalidConfig(f"the SentencePiece vocabulary has a piece of unknown type {bad}")
    for piece, kind in zip(model.pieces, model.types, strict=True):
        if not piece:
            raise InvalidConfig("the SentencePiece vocabulary holds an empty piece")
        if kind in (NORMAL, USER_DEFINED) and len(piece) > _MAX_PIECE_CHARACTERS:
            raise InvalidConfig(f"the SentencePiece vocabulary holds a piece of {len(piece)} characters")


def _merges(model: PieceModel) -> list[tuple[str, str]]:
    """Every way to join two pieces into a third, best joined score first."""
    joinable = {
        piece: (-score, token_id)
        for token_id, (piece, score, kind) in enumerate(zip(model.pieces, model.scores, model.types, strict=True))
        if kind in (NORMAL, USER_DEFINED, UNUSED)
    }
    found = [
        (*rank, joinable[left][1], (left, right))
        for piece, rank in joinable.items()
        for cut in range(1, len(piece))
        if (left := piece[:cut]) in joinable and (right := piece[cut:]) in joinable
    ]
    found.sort(key=lambda merge: merge[:3])
    return [merge[3] for merge in found]
