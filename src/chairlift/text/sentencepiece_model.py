"""Reads a SentencePiece .model file: its pieces with scores and types, and its rules for text.

The file is one protobuf message, of which only the fields used here are read. A broken file, or one that is not BPE
with plain text, is refused with its path.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.protobuf import Field, fields

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

_MAX_FILE_BYTES = 256 << 20
_MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceModel:
    pieces: list[str]
    scores: list[float]
    types: list[int]
    adds_prefix_space: bool = True
    unk_id: int | None = 0
    bos_id: int | None = 1
    eos_id: int | None = 2


def read_sentencepiece(path: Path) -> PieceModel:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise InvalidConfig(f"{path}: too large for a SentencePiece model")
        data = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return _model(data)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error
    except (ValueError, TypeError, struct.error) as error:
        raise InvalidConfig(f"{path}: not a SentencePiece model: {error}") from error


def _model(data: bytes) -> PieceModel:
    pieces: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    trainer: dict[int, Field] = {}
    normalizer: dict[int, Field] = {}
    for field in fields(memoryview(data)):
        if field.number == 1:
            piece = _by_number(field)
            pieces.append(piece[1].text if 1 in piece else "")
            scores.append(struct.unpack("<f", piece[2].data)[0] if 2 in piece else 0.0)
            types.append(_number(piece, 3, NORMAL))
        elif field.number in (2, 3):
            (trainer if field.number == 2 else normalizer).update(_by_number(field))
    if not pieces:
        raise ValueError("it holds no pieces")
    _refuse_other_kinds(trainer, normalizer)
    return PieceModel(
        pieces=pieces,
        scores=scores,
        types=types,
        adds_prefix_space=bool(_number(normalizer, 3, 1)),
        unk_id=_token_id(_number(trainer, 40, 0), len(pieces)),
        bos_id=_token_id(_number(trainer, 41, 1), len(pieces)),
        eos_id=_token_id(_number(trainer, 42, 2), len(pieces)),
    )


def _refuse_other_kinds(trainer: dict[int, Field], normalizer: dict[int, Field]) -> None:
    kind = _number(trainer, 3, 1)
    rules = (bytes(normalizer[1].data).decode(errors="replace") if 1 in normalizer else "") or "unnamed"
    has_rules = 2 in normalizer and len(normalizer[2].data) > 0
    unsupported = {
        f"a SentencePiece model of type {_MODEL_TYPES.get(kind, str(kind))} is not supported; only BPE is": kind != 2,
        "a SentencePiece model with the space behind the word is not supported": _number(trainer, 24, 0),
        f"the SentencePiece normalizer {rules} is not supported; only identity is": has_rules,
        "a SentencePiece model that removes extra whitespace is not supported": _number(normalizer, 4, 1),
        "a SentencePiece model that does not escape whitespace is not supported": not _number(normalizer, 5, 1),
    }
    for message, is_used in unsupported.items():
        if is_used:
            raise InvalidConfig(message)


def _by_number(field: Field) -> dict[int, Field]:
    return {each.number: each for each in field.fields()}


def _number(message: dict[int, Field], number: int, default: int) -> int:
    return message[number].integer if number in message else default


def _token_id(number: int, num_pieces: int) -> int | None:
    if number >= 1 << 63:
        return None  # -1: the model has no such token
    return number if number < num_pieces else None
