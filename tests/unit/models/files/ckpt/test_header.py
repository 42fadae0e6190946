"""The header of a MindSpore checkpoint, of whole and of hostile files."""

import pickle
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.ckpt.header import is_pickle, read_ckpt
from fakes.ckpt import value
from fakes.protobuf import bytes_field, number_field, varint

WHOLE = Path(__file__).parents[4] / "data/mindspore/whole/llama.ckpt"
A = value("a", (2, 3), "Float16", bytes(12))


def written(folder: Path, data: bytes) -> Path:
    path = folder / "x.ckpt"
    path.write_bytes(data)
    return path


def test_tensors_of_a_real_file_have_shapes_types_and_parts() -> None:
    found = read_ckpt(WHOLE)
    assert found["model.tok_embeddings.embedding_weight"].shape == (40, 16)
    assert len(found["model.tok_embeddings.embedding_weight"].pieces) == 3
    assert found["model.layers.0.attention.wv.weight"].type_name == "BFloat16"
    assert found["epoch_num"].shape == ()
    assert found["note"].type_name == "str"


def test_an_older_number_alone_has_a_dimension_of_0(tmp_path: Path) -> None:
    found = read_ckpt(written(tmp_path, value("step", (0,), "Int32", bytes(4))))
    assert found["step"].shape == ()


def test_parts_of_one_tag_are_one_tensor(tmp_path: Path) -> None:
    cut = value("a", (2, 3), "Float16", bytes(8)) + value("a", (2, 3), "Float16", bytes(4))
    (found,) = read_ckpt(written(tmp_path, cut)).values()
    assert [piece.num_bytes for piece in found.pieces] == [8, 4]


def test_fields_that_a_later_release_adds_to_a_tensor_are_skipped(tmp_path: Path) -> None:
    tensor = (
        number_field(1, 2)
        + bytes_field(2, b"Float16")
        + bytes_field(3, bytes(4))
        + number_field(9, 5)
        + bytes_field(10, b"more")
    )
    path = written(tmp_path, bytes_field(1, bytes_field(1, b"a") + bytes_field(2, tensor) + number_field(7, 1)))
    assert read_ckpt(path)["a"].shape == (2,)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "it is empty"),
        (A[:-1], "a field at byte 2 runs past the end"),
        (A + b"\x0a", "in the middle of a number"),
        (A + A, "tensor 'a' appears twice"),
        (A + value("b", (1,), "Float32", bytes(4)) + A, "tensor 'a' appears twice"),
        (value("a", (2, 3), "Float16", bytes(11)), r"tensor 'a' at byte 22 has 11 bytes of Float16, \[2, 3\] takes 12"),
        (value("a", (2, 3), "Float16", bytes(8)) + value("a", (3, 2), "Float16", bytes(4)), "differ in shape or type"),
        (value("a", (2, 3), "Float16", bytes(8)) + value("b", (1,), "Int8", b"1"), "tensor 'a' at byte 22 has 8 bytes"),
        (value("a", (-1,), "Float16", b""), "tensor 'a' at byte 8 has an impossible shape"),
        (value("a", (2**62, 2**62), "Float16", b""), "impossible shape"),
        (value("a", (1,) * 20, "Float16", b"12"), "impossible shape"),
        (value("a", (2**40, 2**7), "Float16", bytes(8)), "takes 281474976710656"),
        (value("n" * 2000, (1,), "Float16", b"12"), "longer than 1024 bytes"),
        (value("", (1,), "Float16", b"12"), "has no name"),
        (bytes_field(1, bytes_field(1, b"a")), "has no name or no tensor"),
        (bytes_field(1, bytes_field(1, b"a") + bytes_field(2, number_field(1, 1))), "has no type or no content"),
        (bytes_field(1, bytes_field(1, b"a") + bytes_field(3, b"")), "is a map"),
        (bytes_field(1, number_field(1, 5)), "a number stands at byte 3"),
        (bytes_field(1, bytes_field(1, b"\xff") + bytes_field(2, b"")), "utf-8"),
        (bytes_field(2, b"strategy"), "field 2 at byte 2 is none of its fields"),
        (b"GGUF" + bytes(40), "not a whole MindSpore checkpoint"),
        (value("a", (100_000,), "Float16", b"1") * 5000, "in more than 4096 parts"),
    ],
)
def test_what_is_no_whole_checkpoint_is_refused_in_one_line(tmp_path: Path, data: bytes, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as refusal:
        read_ckpt(written(tmp_path, data))
    assert "\n" not in str(refusal.value) and "x.ckpt" in str(refusal.value)


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, WHOLE.stat().st_size - 1), byte=st.integers(0, 255), end=st.integers(1, 9000))
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, end: int
) -> None:
    data = bytearray(WHOLE.read_bytes())
    data[at] = byte
    path = written(tmp_path_factory.getbasetemp(), bytes(data[:end]))
    with suppress(InvalidConfig):
        for tensor in read_ckpt(path).values():
            assert all(piece.start + piece.num_bytes <= end for piece in tensor.pieces)


def test_pickles_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    assert is_pickle(written(tmp_path, pickle.dumps({"a": 1})))
    assert is_pickle(written(tmp_path, b"PK\x03\x04rest"))  # what torch writes today
    assert not is_pickle(written(tmp_path, A))
    assert not is_pickle(written(tmp_path, varint(5)))
