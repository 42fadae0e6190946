"""Tiny random models of every family, saved as Hugging Face folders, with the reference that made them."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.overrides import TorchFunctionMode

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.models.files.hf import load_hf
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder, Model
from chairlift.runner.torch.batching import batch_of
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors

CPU = torch.device("cpu")
SHAPE: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
}  # fmt: skip
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 16,
    "beta_fast": 2.0, "beta_slow": 0.1,
}  # fmt: skip
# A quarter of each head stands still. Prompts of tests are longer than 8 tokens and shorter than 64.
PHI_LONGROPE: dict[str, Any] = {
    "pad_token_id": 0, "original_max_position_embeddings": 64, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.3, 1.9], "long_factor": [1.1, 2.5, 9.0],
    },
}  # fmt: skip
GRANITE4: dict[str, Any] = {
    "num_local_experts": 0, "shared_intermediate_size": 40, "layer_types": ["full_attention"] * 2,
    "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.3, "logits_scaling": 5.0,
    "mamba_n_heads": 4, "time_step_limit": [0.0, 1.0],
}  # fmt: skip
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
    "n_shared_experts": 1,
}  # fmt: skip
GEMMA4: dict[str, Any] = {
    "num_hidden_layers": 6, "sliding_window": 9, "head_dim": 8, "global_head_dim": 16, "tie_word_embeddings": True,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2, "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 3.0, "pad_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-mha": ("Llama", {"num_key_value_heads": 4}),
    "llama-gqa-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama3-rope": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-linear-rope": (
        "Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-head-dim": ("Llama", {"head_dim": 16}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": 9}),
    "qwen2-bias": ("Qwen2", {}),
    "qwen2-some-windows": ("Qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen3-qk-norm": ("Qwen3", {"head_dim": 16}),
    "llama-yarn": ("Llama", {"rope_parameters": YARN}),
    "phi3": ("Phi3", {"pad_token_id": 0}),
    "phi3-short": ("Phi3", PHI_LONGROPE | {"max_position_embeddings": 64}),
    "phi3-long": ("Phi3", PHI_LONGROPE | {"original_max_position_embeddings": 8, "sliding_window": 11}),
    "granite": ("Granite", {
        "embedding_multiplier": 12.0, "attention_multiplier": 0.2, "residual_multiplier": 0.22, "logits_scaling": 8.0,
    }),
    "granite4-nope": ("GraniteMoeHybrid", GRANITE4 | {"position_embedding_type": None}),
    "granite4-rope": ("GraniteMoeHybrid", GRANITE4 | {"position_embedding_type": "rope"}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 1], "pad_token_id": 0}),
    "smollm3-by-four": ("SmolLM3", {"num_hidden_layers": 4, "tie_word_embeddings": True, "pad_token_id": 0}),
    "glm4": ("Glm4", {"head_dim": 16, "pad_token_id": 0}),
    "olmo2": ("Olmo2", {}),
    "olmo3": ("Olmo3", {
        "num_hidden_layers": 4, "sliding_window": 9, "pad_token_id": 0, "rope_parameters": {
            "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }),
    "exaone4": ("Exaone4", {"num_hidden_layers": 4, "sliding_window": 9, "sliding_window_pattern": 4}),
    "exaone4-full": ("Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "seed-oss": ("SeedOss", {"head_dim": 16}),
    "seed-oss-biases": ("SeedOss", {"head_dim": 16, "attention_out_bias": True, "mlp_bias": True}),
    "ministral3": ("Ministral3", {
        "head_dim": 16, "pad_token_id": 0, "rope_parameters": {
            **YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.3, "max_position_embeddings": 128,
        },
    }),
    "cohere2": ("Cohere2", {"num_hidden_layers": 4, "sliding_window": 9, "tie_word_embeddings": True}),
    "starcoder2": ("Starcoder2", {"sliding_window": 9, "tie_word_embeddings": True}),
    "starcoder2-plain": ("Starcoder2", {"use_bias": False}),
    "gemma2": ("Gemma2", {
        "head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 9, "num_hidden_layers": 3,
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "tie_word_embeddings": True,
    }),
    "gemma3": ("Gemma3Text", {
        "head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 9, "num_hidden_layers": 7,
        "tie_word_embeddings": True, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }),
    "gemma4-shared": ("Gemma4Text", GEMMA4 | {
        "num_key_value_heads": 1, "num_kv_shared_layers": 3, "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": 97, "use_double_wide_mlp": True,
    }),
    "gemma4-keys-as-values": ("Gemma4Text", GEMMA4 | {
        "num_key_value_heads": 4, "num_global_key_value_heads": 1, "attention_k_eq_v": True,
    }),
    "gemma4-moe": ("Gemma4Text", GEMMA4 | {
        "num_global_key_value_heads": 1, "attention_k_eq_v": True, "enable_moe_block": True, "num_experts": 8,
        "top_k_experts": 3, "moe_intermediate_size": 24, "num_hidden_layers": 3,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
    }),
    "gemma4-unified": ("Gemma4UnifiedText", {
        "num_hidden_layers": 6, "sliding_window": 9, "head_dim": 8, "global_head_dim": 16, "attention_k_eq_v": True,
        "num_global_key_value_heads": 1, "tie_word_embeddings": True, "pad_token_id": 0,
    }),
    "mixtral": ("Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "mixtral-window": ("Mixtral", {"num_local_experts": 3, "num_experts_per_tok": 3, "sliding_window": 9}),
    "qwen3-moe": ("Qwen3Moe", {
        "head_dim": 16, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True,
        "num_hidden_layers": 4, "mlp_only_layers": [1], "use_sliding_window": False,
    }),
    "qwen3-moe-unnormalised": ("Qwen3Moe", {
        "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "decoder_sparse_step": 2,
    }),
    "glm4-moe": ("Glm4Moe", {
        "head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_group": 4,
        "topk_group": 2, "n_shared_experts": 2, "routed_scaling_factor": 1.5, "use_qk_norm": True,
        "attention_bias": True, "first_k_dense_replace": 1, "num_hidden_layers": 3,
    }),
    "glm4-moe-one-group": ("Glm4Moe", {
        "head_dim": 16, "n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "norm_topk_prob": False,
    }),
    "deepseek2": ("DeepseekV2", LATENT | {
        "q_lora_rank": None, "n_shared_experts": 2, "first_k_dense_replace": 1, "rope_parameters": {
            **YARN, "mscale": 0.707, "mscale_all_dim": 0.5,
        },
    }),
    "deepseek2-query-rank": ("DeepseekV2", LATENT | {"v_head_dim": 16, "routed_scaling_factor": 2.0}),
    "deepseek3": ("DeepseekV3", LATENT | {
        "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "num_hidden_layers": 3, "rope_parameters": {
            **YARN, "mscale": 1.0, "mscale_all_dim": 1.0,
        },
    }),
    "glm4-lite": ("Glm4MoeLite", LATENT | {"v_head_dim": 12, "norm_topk_prob": False}),
    "gpt-oss": ("GptOss", {
        "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2, "num_hidden_layers": 3, "sliding_window": 9,
        "rope_parameters": YARN | {"truncate": False},
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }),
}  # fmt: skip
DELTA_NET: dict[str, Any] = {
    "head_dim": 16, "num_hidden_layers": 5, "pad_token_id": 0,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20,
}  # fmt: skip
# Those with states, whose steps are made by `hybrids.py`.
HYBRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3.5": ("Qwen3_5Text", DELTA_NET),
    "qwen3.5-moe": ("Qwen3_5MoeText", DELTA_NET | EXPERTS),
    "qwen3-next": ("Qwen3Next", DELTA_NET | EXPERTS),
}
ALL = FAMILIES | HYBRIDS
DENSE = [name for name, (_, own) in FAMILIES.items() if not any("experts" in key and own[key] for key in own)]


@dataclass
class Twin:
    folder: Path
    reference: Any
    config: ModelConfig

    def decoder(self, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Decoder:
        return build_model(self.config, TorchOps(), HfTensors(self.folder), dtype, device, self.config.max_model_len)

    def reference_logits(self, tokens: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return self.reference(torch.tensor([tokens])).logits[0]

    def reference_logits_in_float64(self, tokens: list[int]) -> torch.Tensor:
        self.reference.double()
        if hasattr(embedding := self.reference.model.embed_tokens, "embed_scale"):  # transformers keeps it in float32
            embedding.embed_scale = torch.tensor(self.config.embedding_factor, dtype=torch.float64)
        with _Float64(), torch.no_grad():
            # Made anew: transformers keeps its frequencies in float32 whatever the model is in.
            rotary = self.reference.model.rotary_emb
            self.reference.model.rotary_emb = rotary and type(rotary)(self.reference.config)
            return self.reference_logits(tokens)


def make_twin(folder: Path, family: str, **changes: Any) -> Twin:
    name, own = ALL[family]
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(**{**SHAPE, **own, **changes})
    config._attn_implementation = "eager"  # others may leave a cap out
    config._experts_implementation = "eager"  # others do not take float64
    reference = getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config).eval()
    # Weights of the usual start are so small that every mistake in attention drowns; these make it matter.
    with torch.no_grad():
        for at, parameter in reference.named_parameters():
            parameter.copy_(_random(at, parameter))
        for name, buffer in reference.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.25)
            elif name.endswith("layer_scalar"):
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    reference.save_pretrained(folder)
    return Twin(folder, reference, load_hf(folder))


def _random(name: str, like: torch.Tensor) -> torch.Tensor:
    if name.endswith("A_log"):  # decays from a token to hundreds
        return torch.empty_like(like).uniform_(0.05, 8.0).log()
    if name.endswith("dt_bias"):
        return torch.randn_like(like) * 0.5 - 2.0
    return torch.randn_like(like) * 0.25 + (1.0 if like.dim() == 1 else 0.0)


class _Float64(TorchFunctionMode):
    """Transformers takes rotations, norms and softmax in float32 whatever the model is in; here all is in float64."""

    def __enter__(self) -> Any:
        torch.set_default_dtype(torch.float64)  # of quotients of whole numbers
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.set_default_dtype(torch.float32)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if each is torch.float32 else each for each in args)
        given = {key: torch.float64 if each is torch.float32 else each for key, each in (kwargs or {}).items()}
        return function(*args, **given)


def random_tokens(count: int, seed: int = 0) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(SHAPE["vocab_size"]) for _ in range(count)]


def request(
    tokens: list[int], params: SamplingParams | None = None, id: int = 0, seed: int = 0, sample_index: int = 0,
    stop_ids: frozenset[int] = frozenset(), num_prompt: int | None = None,
) -> Request:  # fmt: skip
    return Request(
        id=RequestId(id), prompt=tuple(tokens[:num_prompt]), params=params or SamplingParams(temperature=0.0),
        max_output=100, seed=seed, sample_index=sample_index, stop_ids=stop_ids,
    )  # fmt: skip


def chunk(tokens: list[int], start: int, count: int, blocks: list[int], of: Request, is_sampled: bool = True) -> Chunk:
    table = [BlockId(block) for block in blocks]
    return Chunk(of, start, count, tokens, len(tokens), (table,), len(table), (of,) if is_sampled else ())


def step(chunks: list[Chunk], number: int = 0) -> StepPlan:
    """Decodes first, as schedulers order them."""
    ordered = sorted(chunks, key=lambda c: c.count > 1 or not c.samples)
    num_decodes = sum(c.count == 1 and bool(c.samples) for c in ordered)
    return StepPlan(number, tuple(ordered), (), sum(c.count for c in ordered), num_decodes)


def run(decoder: Model, kv: KvCache, chunks: list[Chunk]) -> torch.Tensor:
    """The logits of each sampled chunk's last token, in the order of `chunks`."""
    plan = step(chunks)
    with torch.inference_mode():
        batch = batch_of(plan, kv.block_size, {}, kv.tokens.device)
        logits = decoder.logits(decoder.hidden(batch, kv))
    rows = {c.request.id: row for c, row in zip((c for c in plan.chunks if c.samples), logits, strict=True)}
    return torch.stack([rows[c.request.id] for c in chunks if c.samples])


def shuffled_tables(lengths: list[int], block_size: int, num_blocks: int, seed: int = 0) -> list[list[int]]:
    blocks = list(range(num_blocks))
    random.Random(seed).shuffle(blocks)
    return [[blocks.pop() for _ in range(-(-length // block_size))] for length in lengths]
