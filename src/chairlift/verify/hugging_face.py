"""Hugging Face transformers as a second reference, where it is installed.

A folder is opened by transformers itself; for a GGUF file and for random weights a model is built from our description
and filled with our tensors. In float32 on the CPU, with weights rounded to what the runner keeps them in.
"""

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from chairlift.build import Model
from chairlift.config.model import ModelConfig
from chairlift.runner import hardware
from chairlift.runner.weights.assemble import expected_names
from chairlift.runner.weights.sizes import weight_bytes
from chairlift.runner.weights.source import TensorSource
from chairlift.verify.answer import Row

_CPU = torch.device("cpu")
_GIB = 2**30


def why_not(config: ModelConfig) -> str:
    """The reason why it cannot be compared with; empty: it can."""
    if find_spec("transformers") is None:
        return "it is not installed"
    wanted, free = weight_bytes(config, 4, 4), hardware.free_memory(_CPU)
    if wanted > free * 0.8:
        return (
            f"transformers needs {wanted / _GIB:.0f} GiB for the model in float32, and {free / _GIB:.0f} GiB are free"
        )
    return ""


def logits_of(
    model: Model, tensors: Callable[[], TensorSource], dtype: str, sequences: Sequence[Sequence[int]],
    num_wanted: Sequence[int], watch: Callable[[int, int], None],
) -> list[list[Row]]:  # fmt: skip
    """Of each sequence the logits after its last num_wanted[i] tokens, in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = _opened(model, tensors, getattr(torch, dtype))
        found = []
        for index, (tokens, count) in enumerate(zip(sequences, num_wanted, strict=True)):
            watch(index, len(sequences))
            with torch.inference_mode():
                logits = reference(torch.tensor([list(tokens)])).logits[0, -count:]
            found.append(list(logits.numpy()))
    return found


def _opened(model: Model, tensors: Callable[[], TensorSource], rounded: torch.dtype) -> Any:
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if model.source.kind == "folder" and model.settings.load_format != "dummy":
        reference = transformers.AutoModelForCausalLM.from_pretrained(
            model.source.path, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        )
        with torch.no_grad():
            for parameter in reference.parameters():
                parameter.copy_(parameter.to(rounded))
        return reference.eval()
    return _built(transformers, model.config, tensors(), rounded)


def _built(transformers: Any, config: ModelConfig, tensors: TensorSource, rounded: torch.dtype) -> Any:
    kind = config.architecture.removesuffix("ForCausalLM")
    facts = getattr(transformers, f"{kind}Config")(**_facts(config), attn_implementation="eager")
    with torch.device("meta"):  # nothing is drawn that is replaced at once
        reference = getattr(transformers, config.architecture)(facts)
    shapes = {name: tuple(tensor.shape) for name, tensor in reference.state_dict().items()}
    weights = {
        name: tensors.read(name, shapes[name]).to(_CPU).to(rounded).float().clone() for name in expected_names(config)
    }
    if config.is_tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    reference.load_state_dict(weights, assign=True)
    # Tables that are computed, not stored, were made of nothing too.
    reference.model.rotary_emb = type(reference.model.rotary_emb)(facts)
    return reference.eval()


def _facts(config: ModelConfig) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_model_len,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.is_tied,
        "rope_parameters": _rope(config),
    }
    if config.sliding_window:
        facts |= {"sliding_window": config.sliding_window, "use_sliding_window": True, "max_window_layers": 0}
    elif config.architecture == "MistralForCausalLM":
        facts["sliding_window"] = None
    return facts


def _rope(config: ModelConfig) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    scaling = config.rope_scaling
    if scaling is None:
        return rope
    rope |= {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "llama3":
        rope |= {
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_len,
        }
    return rope
