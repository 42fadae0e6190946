"""GGUF files of Gemma 2 and 3, written as converters write them: norms with their 1, and more names than Llama's."""

from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch

from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, run
from unit.runner.weights.test_gguf import Kind, metadata_of, tensors, write

ARCHITECTURES = {"gemma2": gguf.MODEL_ARCH.GEMMA2, "gemma3": gguf.MODEL_ARCH.GEMMA3}
# Files tell neither scale nor, in Gemma 3, the factor of rotations: these are the family's own.
SHAPES = {
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3": {"query_pre_attn_scalar": 16, "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }},
}  # fmt: skip


def write_gemma(twin: Twin, path: Path, family: str) -> Path:
    config = twin.reference.config
    names = gguf.get_tensor_name_map(ARCHITECTURES[family], config.num_hidden_layers)
    written = {}
    for name, tensor in twin.reference.state_dict().items():
        if name != "lm_head.weight":  # tied
            stored = tensor + 1.0 if tensor.dim() == 1 else tensor
            written[f"{names.get_name(name.removesuffix('.weight'))}.weight"] = (stored.numpy(), Kind.F32)
    full = next(layer for layer in twin.config.layers if not layer.attention.window)
    alike = replace(twin, config=replace(twin.config, layers=(full,) * twin.config.num_layers))
    facts = metadata_of(alike) | {"attention.sliding_window": config.sliding_window}
    if family == "gemma2":
        facts |= {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
    return write(path, written, family, facts)


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_a_gemma_written_as_gguf_is_the_same_model(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path / "hf", family, **SHAPES[family])
    path = write_gemma(twin, tmp_path / "twin.gguf", family)
    config = load_gguf(read_header(path))
    decoder = build_model(config, TorchOps(), tensors(path), torch.float32, CPU, config.max_model_len)
    tokens = random_tokens(20)
    kv = KvCache(config, 8, 4, torch.float32, CPU)
    logits = run(decoder, kv, [chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))])
    torch.testing.assert_close(logits[0], twin.reference_logits(tokens)[-1], atol=1e-3, rtol=1e-3)
