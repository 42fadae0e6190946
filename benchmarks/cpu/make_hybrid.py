"""GGUF files of random weights in the shapes of small hybrids, for tables beside llama.cpp.

python benchmarks/cpu/make_hybrid.py FOLDER [--llama-quantize PROGRAM]

qwen3.5-0.8b-q8_0.gguf, qwen3.5-2b-q8_0.gguf      blocks of random bytes; the embedded model's tokenizer, made longer
qwen3.5-0.8b-q4_k_m.gguf, qwen3.5-2b-q4_k_m.gguf  made of these by llama.cpp's own quantiser, when its program is named
"""

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from make_models import FILE_TYPE_Q8_0, metadata_of
from numpy.typing import NDArray

from chairlift.models.source import embedded_path

SIZES = {"0.8b": (1024, 3584), "2b": (2048, 6144)}  # hidden, inner
VOCAB, LAYERS, EVERY = 248_320, 24, 4  # of so many layers, the last attends
HEADS, KV_HEADS, HEAD_DIM = 8, 2, 256
DELTA_HEADS, DELTA_DIM, TAPS = 16, 128, 4
BLOCK = 32
Data = tuple[NDArray[Any], GGMLQuantizationType]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, help="only this one")
    parser.add_argument("--llama-quantize", help="llama.cpp's program of that name, for the K-quantised files")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for size in [args.size] if args.size else SIZES:
        source = args.folder / f"qwen3.5-{size}-q8_0.gguf"
        write(source, *SIZES[size])
        if args.llama_quantize:
            target = args.folder / f"qwen3.5-{size}-q4_k_m.gguf"
            subprocess.run([args.llama_quantize, "--allow-requantize", source, target, "Q4_K_M"], check=True)


def write(path: Path, hidden: int, inner: int) -> None:
    writer = GGUFWriter(path, "qwen35")
    for name, (value, types) in metadata_of(GGUFReader(embedded_path())).items():
        if name.startswith("tokenizer."):
            writer.add_key_value(name, lengthened(name, value), types[0], types[-1] if len(types) > 1 else None)
    writer.add_file_type(FILE_TYPE_Q8_0)
    for name, number in facts(hidden, inner).items():
        kind = GGUFValueType.FLOAT32 if isinstance(number, float) else GGUFValueType.UINT32
        writer.add_key_value(f"qwen35.{name}", number, kind)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    for name, (data, kind) in tensors(hidden, inner):
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def lengthened(name: str, value: Any) -> Any:
    """Tokens that no text has, up to the vocabulary's size."""
    if name.endswith(".tokens"):
        return value + [f"<|{index}|>" for index in range(len(value), VOCAB)]
    return value + [1] * (VOCAB - len(value)) if name.endswith(".token_type") else value


def facts(hidden: int, inner: int) -> dict[str, int | float]:
    return {
        "context_length": 32768, "embedding_length": hidden, "block_count": LAYERS, "feed_forward_length": inner,
        "vocab_size": VOCAB, "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e7, "rope.dimension_count": HEAD_DIM // 4,
        "full_attention_interval": EVERY, "ssm.conv_kernel": TAPS, "ssm.state_size": DELTA_DIM,
        "ssm.group_count": DELTA_HEADS, "ssm.time_step_rank": DELTA_HEADS, "ssm.inner_size": DELTA_HEADS * DELTA_DIM,
    }  # fmt: skip


def tensors(hidden: int, inner: int) -> Iterator[tuple[str, Data]]:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Data:
        """Blocks of a half float, then 32 bytes: numbers as large as those of a trained matrix."""
        blocks = np.empty((rows, columns // BLOCK, 2 + BLOCK), np.uint8)
        blocks[..., :2] = np.frombuffer(np.float16(1 / 73 / columns**0.5).tobytes(), np.uint8)
        blocks[..., 2:] = rng.integers(0, 256, (rows, columns // BLOCK, BLOCK), np.uint8)
        return blocks.reshape(rows, -1), GGMLQuantizationType.Q8_0

    def floats(values: NDArray[Any]) -> Data:
        return values.astype(np.float32), GGMLQuantizationType.F32

    def ones(count: int) -> Data:
        return floats(np.ones(count))

    width, channels = DELTA_HEADS * DELTA_DIM, 3 * DELTA_HEADS * DELTA_DIM
    queries, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    yield "token_embd.weight", matrix(VOCAB, hidden)
    yield "output_norm.weight", ones(hidden)
    for layer in range(LAYERS):
        own = {
            "attn_norm.weight": ones(hidden), "post_attention_norm.weight": ones(hidden),
            "ffn_gate.weight": matrix(inner, hidden), "ffn_up.weight": matrix(inner, hidden),
            "ffn_down.weight": matrix(hidden, inner),
        }  # fmt: skip
        if layer % EVERY == EVERY - 1:
            own |= {
                "attn_q.weight": matrix(2 * queries, hidden), "attn_k.weight": matrix(kv, hidden),
                "attn_v.weight": matrix(kv, hidden), "attn_output.weight": matrix(hidden, queries),
                "attn_q_norm.weight": ones(HEAD_DIM), "attn_k_norm.weight": ones(HEAD_DIM),
            }  # fmt: skip
        else:
            own |= {
                "attn_qkv.weight": matrix(channels, hidden), "attn_gate.weight": matrix(width, hidden),
                "ssm_conv1d.weight": floats(rng.standard_normal((channels, TAPS)) / 2),
                "ssm_a": floats(-rng.uniform(0.01, 1, DELTA_HEADS)), "ssm_dt.bias": floats(np.zeros(DELTA_HEADS)),
                "ssm_beta.weight": matrix(DELTA_HEADS, hidden), "ssm_alpha.weight": matrix(DELTA_HEADS, hidden),
                "ssm_norm.weight": ones(DELTA_DIM), "ssm_out.weight": matrix(hidden, width),
            }  # fmt: skip
        yield from ((f"blk.{layer}.{name}", data) for name, data in own.items())


if __name__ == "__main__":
    main()
