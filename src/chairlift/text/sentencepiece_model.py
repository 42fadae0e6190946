"""Reads a SentencePiece .model file: its pieces with scores and types, and its rules for text.

The file is one protobuf message, of which only the fields used here are read. A broken file, or one that is not BPE
with plain text, is refused with its path.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chairlift.core.errors import InvalidConfig

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
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for field, value in _fields(data):
        if field == 1:
            piece = dict(_fields(_message(value)))
            pieces.append(_message(piece.get(1, b"")).decode())
            scores.append(struct.unpack("<f", _message(piece[2]))[0] if 2 in piece else 0.0)
            types.append(_number(piece.get(3, NORMAL)))
        elif field in (2, 3):
            (trainer if field == 2 else normalizer).update(_fields(_message(value)))
    if not pieces:
        raise ValueError("it holds no pieces")
    _refuse_other_kinds(trainer, normalizer)
    return PieceModel(
        pieces=pieces,
        scores=scores,
        types=types,
        adds_prefix_space=bool(_number(normalizer.get(3, 1))),
        unk_id=_token_id(trainer.get(40, 0), len(pieces)),
        bos_id=_token_id(trainer.get(41, 1), len(pieces)),
        eos_id=_token_id(trainer.get(42, 2), len(pieces)),
    )


def _refuse_other_kinds(trainer: dict[int, int | bytes], normalizer: dict[int, int | bytes]) -> None:
    kind = _number(trainer.get(3, 1))
    rules = _message(normalizer.get(1, b"")).decode(errors="replace") or "unnamed"
    unsupported = {
        f"a SentencePiece model of type {_MODEL_TYPES.get(kind, str(kind))} is not supported; only BPE is": kind != 2,
        "a SentencePiece model with the space behind the word is not supported": _number(trainer.get(24, 0)),
        f"the SentencePiece normalizer {rules} is not supported; only identity is": _message(normalizer.get(2, b"")),
        "a SentencePiece model that removes extra whitespace is not supported": _number(normalizer.get(4, 1)),
        "a SentencePiece model that does not escape whitespace is not supported": not _number(normalizer.get(5, 1)),
    }
    for message, is_used in unsupported.items():
        if is_used:
            raise InvalidConfig(message)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) for each field of a message; a value is an integer or the field's bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"unknown wire type {kind} at byte {at}")
        if length > len(data) - at:
            raise ValueError(f"a field at byte {at} runs past the end")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("it ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number at byte {at} is longer than 64 bits")


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where bytes belong")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("bytes stand where a number belongs")
    return value


def _token_id(value: int | bytes, num_pieces: int) -> int | None:
    number = _number(value)
    if number >= 1 << 63:
        return None  # -1: the model has no such token
    return number if number < num_pieces else None
