import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.gguf.header import TENSOR_TYPES, read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.mixers.attention import Rotation
from chairlift.models.source import embedded_path


def write_gguf(path: Path, **options: int) -> Path:
    """A tiny Llama with one value of every kind of metadata."""
    writer = gguf.GGUFWriter(path, "llama")
    if "alignment" in options:
        writer.add_custom_alignment(options["alignment"])
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["<s>", "é", ""])
    writer.add_token_types([3, 1, 1])
    writer.add_bool("test.flag", True)
    writer.add_uint64("test.big", 2**63)
    writer.add_int8("test.small", -3)
    writer.add_float64("test.double", 0.1)
    writer.add_array("test.bools", [True, False])
    writer.add_tensor("token_embd.weight", np.arange(96, dtype=np.float32).reshape(3, 32))
    writer.add_tensor("half", np.ones((2, 32), dtype=np.float16))
    quantised = gguf.quants.quantize(np.ones((4, 64), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("quantised", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_metadata_of_every_kind_is_read(tiny: Path) -> None:
    metadata = read_header(tiny).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["tokenizer.ggml.tokens"] == ["<s>", "é", ""]
    assert metadata["tokenizer.ggml.token_type"] == [3, 1, 1]
    assert metadata["test.flag"] is True
    assert metadata["test.big"] == 2**63
    assert metadata["test.small"] == -3
    assert metadata["test.double"] == 0.1
    assert metadata["test.bools"] == [True, False]


@pytest.mark.parametrize("alignment", [32, 128])
def test_tensors_lie_where_the_header_says(tmp_path: Path, alignment: int) -> None:
    path = write_gguf(tmp_path / "aligned.gguf", alignment=alignment)
    header = read_header(path)
    assert header.alignment == alignment
    embedding = header.tensors["token_embd.weight"]
    assert (embedding.shape, embedding.type_name, embedding.offset % alignment) == ((32, 3), "F32", 0)
    found = np.fromfile(path, dtype="<f4", count=96, offset=embedding.offset)
    assert found.tolist() == list(range(96))


def test_quantised_tensors_have_the_size_of_their_blocks(tiny: Path) -> None:
    tensor = read_header(tiny).tensors["quantised"]
    assert (tensor.shape, tensor.num_bytes) == ((64, 4), 64 * 4 // 32 * 34)


def test_reader_agrees_with_the_gguf_package(tiny: Path) -> None:
    theirs = {t.name: (tuple(int(d) for d in t.shape), t.data_offset) for t in gguf.GGUFReader(tiny).tensors}
    assert {name: (t.shape, t.offset) for name, t in read_header(tiny).tensors.items()} == theirs


def header_bytes(version: int = 3, tensors: int = 0, pairs: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def tensor(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a GGUF file: only 0 bytes"),
        (b"PK\3\4" + bytes(40), "not a GGUF file: it starts with"),
        (header_bytes(version=1), "version 1 is not 2 or 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (header_bytes(tensors=2**60), "tensor count of 1152921504606846976 does not fit"),
        (header_bytes(pairs=2**40), "metadata count of 1099511627776 does not fit"),
        (header_bytes(pairs=1, rest=struct.pack("<Q", 2**50) + bytes(20)), "does not fit in the file"),
        (header_bytes(pairs=1, rest=string(b"k") + struct.pack("<IQ", 77, 0)), "'k' has unknown type 77"),
        (header_bytes(pairs=1, rest=string(b"k") + struct.pack("<IIQ", 9, 9, 0)), "array of unknown type 9"),
        (header_bytes(pairs=1, rest=string(b"k") + struct.pack("<IIQ", 9, 4, 2**40)), "length of 'k'"),
        (header_bytes(pairs=1, rest=string(b"k") + struct.pack("<IIQQ", 9, 8, 1, 99)), "runs past the end"),
        (header_bytes(pairs=2, rest=2 * (string(b"k") + struct.pack("<II", 4, 1))), "'k' appears twice"),
        (header_bytes(tensors=1, rest=string(b"t") + struct.pack("<IQQQ", 9, 1, 1, 1)), "9 dimensions"),
        (header_bytes(tensors=1, rest=tensor(b"t", (2**62, 2**62), 0, 0)), "'t' lies past the end"),
        (header_bytes(tensors=1, rest=tensor(b"t", (33,), 8, 0)), "rows of 33 values, not a multiple of 32"),
        (header_bytes(tensors=1, rest=tensor(b"t", (1,), 99, 2**50)), "'t' lies past the end"),
        (header_bytes(pairs=1, rest=string(b"general.alignment") + struct.pack("<II", 4, 0)), "not a power of two"),
    ],
)
def test_a_hostile_header_is_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(InvalidConfig) as refusal:
        read_header(path)
    assert "bad.gguf" in str(refusal.value)
    assert complaint in str(refusal.value)


def test_the_types_are_those_of_the_library() -> None:
    theirs = {kind.value: (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    assert {kind: TENSOR_TYPES.get(kind) for kind in theirs} == theirs


def test_every_truncation_is_refused(tiny: Path, tmp_path: Path) -> None:
    whole = tiny.read_bytes()
    last = read_header(tiny).tensors["quantised"]
    assert last.num_bytes is not None
    path = tmp_path / "cut.gguf"
    for length in [*range(0, last.offset, 7), last.offset + last.num_bytes - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidConfig, match=r"cut\.gguf"):
            read_header(path)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(edits=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), min_size=1, max_size=12))
def test_changed_bytes_give_a_header_or_a_refusal(
    edits: list[tuple[int, int]], tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(tiny.read_bytes())
    for place, value in edits:
        content[place] = value
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    path.write_bytes(content)
    try:
        load_gguf(read_header(path))
    except InvalidConfig as error:
        refusal = str(error)
    else:
        return
    assert "mutated.gguf" in refusal


def test_a_folder_is_refused_and_so_is_a_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.gguf"):
        with pytest.raises(InvalidConfig, match="cannot be read"):
            read_header(path)


def test_the_embedded_model_is_described() -> None:
    header = read_header(embedded_path())
    config = load_gguf(header)
    assert (config.architecture, config.num_layers, config.hidden_size) == ("LlamaForCausalLM", 30, 576)
    (attention,) = {layer.attention for layer in config.layers}
    assert (attention.num_heads, attention.num_kv_heads, attention.head_dim) == (9, 3, 64)
    assert attention.rotation == Rotation(theta=100000.0)
    assert (config.vocab_size, config.max_model_len) == (49152, 8192)
    assert (config.is_tied, config.bos_id, config.eos_ids) == (True, 1, (2,))
    assert len(header.metadata["tokenizer.ggml.tokens"]) == 49152
    assert len(header.metadata["tokenizer.ggml.merges"]) == 48900
