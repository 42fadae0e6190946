import random
from pathlib import Path

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.text.sentencepiece_model import read_sentencepiece
from fakes.protobuf import bytes_field, number_field
from unit.text.vocabularies import model_file, piece_list


def read(tmp_path: Path, data: bytes) -> object:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    return read_sentencepiece(path)


def test_pieces_scores_and_types_come_back(tmp_path: Path) -> None:
    pieces, scores, types = piece_list()
    model = read(tmp_path, model_file(pieces, scores, types))
    assert (model.pieces, model.scores, model.types) == (pieces, scores, types)
    assert (model.unk_id, model.bos_id, model.eos_id, model.adds_prefix_space) == (0, 1, 2, True)


def test_a_missing_begin_token_is_none(tmp_path: Path) -> None:
    model = read(tmp_path, model_file(*piece_list(), trainer=number_field(3, 2) + number_field(41, -1)))
    assert model.bos_id is None


def test_the_prefix_space_can_be_off(tmp_path: Path) -> None:
    model = read(tmp_path, model_file(*piece_list(), normalizer=number_field(3, 0) + number_field(4, 0)))
    assert not model.adds_prefix_space


@pytest.mark.parametrize(
    ("trainer", "normalizer", "named"),
    [
        (b"", number_field(4, 0), "type unigram"),
        (number_field(3, 4), number_field(4, 0), "type char"),
        (number_field(3, 2), b"", "extra whitespace"),
        (number_field(3, 2), bytes_field(1, b"nmt_nfkc") + bytes_field(2, b"\0\1"), "nmt_nfkc"),
        (number_field(3, 2) + number_field(24, 1), number_field(4, 0), "behind the word"),
    ],
)
def test_another_kind_of_model_is_refused_by_name(
    tmp_path: Path, trainer: bytes, normalizer: bytes, named: str
) -> None:
    with pytest.raises(InvalidConfig, match=named):
        read(tmp_path, model_file(*piece_list(), trainer=trainer, normalizer=normalizer))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0a\xff\xff\xff\xff\x7f",  # a length beyond the end
        b"\xff" * 20,  # a number without end
        b"\x0b\x00",  # a wire type that is not known
        number_field(1, 5),  # a number where a piece belongs
        bytes_field(1, bytes_field(1, b"\xff\xfe")),  # a piece that is not UTF-8
        bytes_field(1, number_field(2, 5)),  # a score that is not a float
        bytes_field(1, bytes_field(2, b"ab")),  # a score of two bytes
        b"{}",
    ],
)
def test_what_is_not_such_a_file_is_refused_with_its_path(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InvalidConfig, match=r"tokenizer\.model: not a SentencePiece model"):
        read(tmp_path, data)


def test_a_truncated_or_damaged_file_is_read_or_refused_but_never_crashes(tmp_path: Path) -> None:
    whole = model_file(*piece_list())
    draw = random.Random(1)
    num_refused = 0
    for _ in range(200):
        damaged = bytearray(whole[: draw.randrange(1, len(whole))])
        for _ in range(draw.randrange(4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            read(tmp_path, bytes(damaged))
        except InvalidConfig:
            num_refused += 1
    # The kind of model stands behind the pieces, so a cut file never shows that it is BPE.
    assert num_refused > 150


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_sentencepiece(tmp_path / "none.model")
