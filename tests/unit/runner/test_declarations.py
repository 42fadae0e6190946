"""Random declarations of models against the independent reference."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from chairlift.lab.verify import dense
from chairlift.lab.verify.output import Logits
from chairlift.models.spec import ExpertsSpec, LayerSpec, ModelConfig
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder, Model
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.native.tape import taped_decoder
from chairlift.runner.ops import Ops
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from fakes.declarations import MAX_LEN, DrawnTensors, random_declaration
from unit.runner.twins import CPU, chunk, random_tokens, request, run, shuffled_tables

SEEDS = range(24)
BLOCK = 4
TEXTS = [[token % 61 for token in random_tokens(length, seed=length)] for length in (31, 18, 7)]
# Tokens of each text in each step: chunks of prompts beside decodes, then decodes alone.
STEPS = [(11, 1, 3), (1, 9, 1), (15, 4, 1), (1, 1, 1), (1, 1, 1), (1, 1, 0), (1, 1, 0)]
NAMES = {torch.float64: "float64", torch.float32: "float32"}


def built(seed: int, ops: Ops, dtype: torch.dtype) -> Decoder:
    return build_model(random_declaration(seed), ops, DrawnTensors(), dtype, CPU, MAX_LEN)


def reference(config: ModelConfig, dtype: torch.dtype) -> list[list[Logits]]:
    counts = [len(text) for text in TEXTS]
    return dense.logits_of(config, DrawnTensors(), NAMES[dtype], "cpu", TEXTS, counts, lambda *_: None)


def steps(decoder: Model, dtype: torch.dtype) -> Iterator[tuple[int, int, Tensor]]:
    """(text, position, logits there) of every step."""
    tables = shuffled_tables([len(text) for text in TEXTS], BLOCK, 24)
    kv = KvCache(decoder.config, 24, BLOCK, dtype, CPU)
    requests = [request(text, id=i) for i, text in enumerate(TEXTS)]
    done = [0] * len(TEXTS)
    for counts in STEPS:
        chunks = [chunk(TEXTS[i], done[i], n, tables[i], requests[i]) for i, n in enumerate(counts) if n]
        logits = iter(run(decoder, kv, chunks))
        for i, n in enumerate(counts):
            done[i] += n
            if n:
                yield i, done[i] - 1, next(logits)
    assert done == [len(text) for text in TEXTS]


@pytest.mark.parametrize("seed", SEEDS)
def test_logits_are_those_of_the_reference_in_chunks_and_decodes(seed: int) -> None:
    wanted = reference(random_declaration(seed), torch.float64)
    for text, position, logits in steps(built(seed, TorchOps(), torch.float64), torch.float64):
        np.testing.assert_allclose(logits.numpy(), wanted[text][position], atol=1e-9, rtol=1e-9)


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
@pytest.mark.parametrize("seed", SEEDS)
def test_native_logits_are_those_of_the_reference_replayed_and_called(seed: int) -> None:
    wanted, ops = reference(random_declaration(seed), torch.float64), NativeOps(2)
    decoder = built(seed, ops, torch.float32)
    called, played = (list(steps(each, torch.float32)) for each in (decoder, taped_decoder(decoder, ops.calls)))
    for (text, position, logits), (_, _, same) in zip(called, played, strict=True):
        np.testing.assert_allclose(logits.numpy(), wanted[text][position], atol=1e-3, rtol=1e-3)
        assert torch.equal(logits, same)


def test_random_declarations_differ_in_every_field_of_layers() -> None:
    configs = [random_declaration(seed) for seed in SEEDS]
    layers: list[LayerSpec] = [layer for config in configs for layer in config.layers]
    for name in (
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "scale",
        "window",
        "cap",
        "has_bias",
        "has_output_bias",
        "has_qk_norm",
        "has_sinks",
        "has_value_norm",
        "has_keys_as_values",
        "has_own_rows",
    ):
        assert len({getattr(layer.attention, name) for layer in layers}) > 1, name
    rotations = [layer.attention.rotation for layer in layers]
    assert None in rotations
    scalings = [rotation.scaling for rotation in rotations if rotation]
    assert {scaling and scaling.kind for scaling in scalings} == {None, "linear", "llama3", "yarn", "longrope"}
    assert {scaling.original_max_len < MAX_LEN for scaling in scalings if scaling and scaling.long_factors} == {0, 1}
    assert len({rotation.num_turned for rotation in rotations if rotation}) > 3
    assert {rotation.num_pairs for rotation in rotations if rotation} == {0, 2}
    for name in ("width", "activation", "has_gate", "has_bias"):
        assert len({getattr(layer.feed_forward, name) for layer in layers}) > 1, name
    mixtures = [layer.feed_forward.experts for layer in layers if layer.feed_forward.experts]
    for name in ExpertsSpec.__dataclass_fields__.keys() - {"count"}:
        assert len({getattr(mixture, name) for mixture in mixtures}) > 1, name
    norms = {(layer.has_norm_before, layer.has_norm_after) for layer in layers}
    assert norms == {(True, False), (False, True), (True, True)}
    for name in ("residual_factor", "is_parallel", "has_scalar"):
        assert len({getattr(layer, name) for layer in layers}) > 1, name
    for name in (
        "embedding_factor",
        "logit_factor",
        "logit_cap",
        "is_tied",
        "hidden_size",
        "has_centred_norms",
        "has_norm_biases",
        "token_width",
    ):
        assert len({getattr(config, name) for config in configs}) > 1, name
    for name in ("norm_offset", "qk_norm_offset", "has_paired_rows", "qkv", "expert_down"):
        assert len({getattr(config.names, name) for config in configs}) > 1, name
