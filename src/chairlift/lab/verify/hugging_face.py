"""Hugging Face transformers as a second reference, where it is installed.

A folder is opened by transformers itself; for other files and for random weights it reads the configuration and is
filled with our tensors. In float32 on the CPU, with weights rounded to what the runner keeps them in.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from chairlift.build import ResolvedModel
from chairlift.models.families.known import BY_ARCHITECTURE
from chairlift.models.families.wrapped import text_values
from chairlift.models.mixers.attention import Rotation
from chairlift.models.source import config_json
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import GGUF_NAMES, expected_parts, weight_bytes
from chairlift.runner.machine import hardware
from chairlift.runner.weights.source import TensorSource, as_stored, in_order
from chairlift.telemetry.logit_files import Logits

_CPU = torch.device("cpu")
_GIB = 2**30
_READ_AS_GGUF = (
    "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"
)  # fmt: skip


def why_not(config: ModelConfig, max_len: int = 0, is_folder: bool = True) -> str:
    """Why it cannot be compared with; empty: it can. max_len: that is served; is_folder: transformers can open the
    model itself."""
    if find_spec("transformers") is None:
        return "it is not installed"
    if not hasattr(import_module("transformers"), config.architecture):
        return f"it does not know {config.architecture}"
    if config.quantisation is not None:
        return "it needs kernels of others for quantised weights"
    if config.four_bits is not None:
        return "it needs kernels of others for MXFP4"
    if not is_folder and any(layer.feed_forward.experts for layer in config.layers):
        return "it keeps experts in other tensors than this file"
    if config.names.layer == GGUF_NAMES.layer and config.architecture not in _READ_AS_GGUF:
        return f"its GGUF files of {config.architecture} are not read by transformers"
    if any(_original_len(spec.rotation) < max_len for spec in config.attentions):
        return "it chooses the factors of longrope by the length of each text, not by what is served"
    wanted, free = weight_bytes(config, 4, 4), hardware.free_memory(_CPU)
    if wanted > free * 0.8:
        return f"transformers needs {wanted / _GIB:.0f} GiB for the model in float32, {free / _GIB:.0f} GiB are free"
    return ""


def _original_len(rotation: Rotation | None) -> float:
    """Up to which texts have the factors that are served."""
    scaling = rotation.scaling if rotation else None
    return scaling.original_max_len if scaling and scaling.kind == "longrope" else math.inf


def logits_of(
    model: ResolvedModel, tensors: Callable[[], TensorSource], dtype: str, sequences: Sequence[Sequence[int]],
    num_wanted: Sequence[int], watch: Callable[[int, int], None],
) -> list[list[Logits]]:  # fmt: skip
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


def is_folder(model: ResolvedModel) -> bool:
    """Whether transformers can open it itself."""
    has_own = model.source.kind == "folder" and model.source.model_cfg is None
    return has_own and model.settings.load_format != "dummy"


def _opened(model: ResolvedModel, tensors: Callable[[], TensorSource], rounded: torch.dtype) -> Any:
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if is_folder(model):
        kind = transformers.AutoModelForImageTextToText if model.config.towers else transformers.AutoModelForCausalLM
        reference = kind.from_pretrained(
            model.source.path, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        )
        with torch.no_grad():
            for parameter in reference.parameters():
                parameter.copy_(parameter.to(rounded))
        return reference.eval()
    return _built(transformers, model, tensors(), rounded)


def _built(transformers: Any, model: ResolvedModel, tensors: TensorSource, rounded: torch.dtype) -> Any:
    config, source = model.config, model.source
    if source.kind == "gguf":
        path = source.path
        facts = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
        _complete(facts, config)
    else:
        model_type = BY_ARCHITECTURE[config.architecture].model_type
        values = config_json(source)
        values = text_values(str(source.folder), values) or values
        facts = transformers.AutoConfig.for_model(**{**values, "model_type": model_type})
    facts._attn_implementation = "eager"
    with import_module("transformers.initialization").no_init_weights():
        reference = transformers.AutoModelForCausalLM.from_config(facts)
    names = BY_ARCHITECTURE[config.architecture].names
    weights = {}
    for wanted, part in zip(expected_parts(replace(config, names=names)), expected_parts(config), strict=True):
        tensor = as_stored(in_order(tensors.read(part.name, part.shape).to(_CPU), part.order), wanted.order)
        tensor = tensor.to(rounded).float().clone()
        weights[wanted.name] = tensor.add_(part.offset - wanted.offset)
    if config.is_tied:
        weights[f"{names.head}.weight"] = weights[f"{names.embedding}.weight"]
    reference.load_state_dict(weights, assign=True)
    return reference.eval()


def _complete(facts: Any, config: ModelConfig) -> None:
    """Adds what transformers does not read from a GGUF file: the size of heads, and scaling, a tensor there."""
    facts.head_dim = config.layers[0].attention.head_dim
    rotations = {layer.attention.rotation for layer in config.layers}
    if len(rotations) == 1 and (rotation := rotations.pop()) is not None:
        facts.rope_parameters = _rope(rotation)


def _rope(rotation: Rotation) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": rotation.theta}
    if (scaling := rotation.scaling) is not None:
        rope |= {"rope_type": scaling.kind, "factor": scaling.factor}
        if scaling.kind == "llama3":
            rope |= {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
            rope["original_max_position_embeddings"] = scaling.original_max_len
    return rope
