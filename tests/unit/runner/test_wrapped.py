"""The text of models of text and images: the logits of transformers, and nothing of a tower read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from chairlift.build import ResolvedModel
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify import hugging_face
from chairlift.models.adapters.adapter import read_adapter
from chairlift.models.files.hf import load_hf
from chairlift.models.source import Source
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.weights.hf import HfTensors
from unit.runner.hybrids import States
from unit.runner.twins import CPU, FAMILIES, HYBRIDS, SHAPE, Twin, chunk, random_tokens, request, run

ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
VISION = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip
QWEN_VISION = {"depth": 1, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 2, "num_position_embeddings": 16}
GEMMA4_VISION = VISION | {"head_dim": 8, "num_key_value_heads": 2, "position_embedding_size": 8}
PIXTRAL = VISION | {"model_type": "pixtral"}
WRAPPED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gemma3": ("Gemma3", FAMILIES["gemma3"][1] | {"num_hidden_layers": 2}, VISION),
    "gemma4": ("Gemma4", FAMILIES["gemma4-shared"][1], GEMMA4_VISION),
    "gemma4-unified": ("Gemma4Unified", FAMILIES["gemma4-unified"][1], {}),
    "mistral3": ("Mistral3", {"model_type": "mistral", "sliding_window": None}, PIXTRAL),
    "ministral3": ("Mistral3", {**FAMILIES["ministral3"][1], "model_type": "ministral3"}, PIXTRAL),
    "qwen2-vl": ("Qwen2VL", {"rope_parameters": ROPE}, {"depth": 1, "embed_dim": 16, "hidden_size": 32}),
    "qwen2.5-vl": ("Qwen2_5_VL", {"rope_parameters": ROPE}, QWEN_VISION | {"fullatt_block_indexes": [0]}),
    "qwen3-vl": (
        "Qwen3VL", {"head_dim": 8, "rope_parameters": ROPE | {"mrope_interleaved": True}},
        QWEN_VISION | {"deepstack_visual_indexes": [0]},
    ),
    "qwen3.5": ("Qwen3_5", HYBRIDS["qwen3.5"][1], QWEN_VISION),
    "qwen3.5-moe": ("Qwen3_5Moe", HYBRIDS["qwen3.5-moe"][1], QWEN_VISION),
}  # fmt: skip


def make_wrapped(folder: Path, kind: str) -> Twin:
    name, text, vision = WRAPPED[kind]
    torch.manual_seed(7)
    text = SHAPE | text
    own = {"text_config": text, "vision_config": vision, "tie_word_embeddings": text["tie_word_embeddings"]}
    config = getattr(transformers, f"{name}Config")(**own)
    config._attn_implementation = "eager"
    config._experts_implementation = config.text_config._experts_implementation = "eager"
    reference = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.25 + (1.0 if parameter.dim() == 1 else 0.0))
    reference.save_pretrained(folder)
    return Twin(folder, reference, load_hf(folder))


@pytest.mark.parametrize("kind", WRAPPED)
def test_its_text_has_the_logits_of_transformers(tmp_path: Path, kind: str) -> None:
    twin = make_wrapped(tmp_path, kind)
    tokens = random_tokens(20)
    expected = twin.reference_logits(tokens)
    whole = [chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))]
    if kind in HYBRIDS:
        logits = States(twin.decoder(), 4).run(whole)
    else:
        logits = run(twin.decoder(), KvCache(twin.config, 8, 4, torch.float32, CPU), whole)
    torch.testing.assert_close(logits[0], expected[-1], atol=1e-3, rtol=1e-4)
    (line,) = twin.config.warnings
    assert line.endswith(f"takes images too: its text alone is served, as {twin.config.architecture}")


# What files have had before the names that transformers gives its tensors here.
PREFIXES = (
    {"model.": "model.language_model.", "visual.": "model.visual."},
    {"model.": "language_model.model.", "lm_head.": "language_model.lm_head."},
)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return make_wrapped(tmp_path_factory.mktemp("qwen"), "qwen2.5-vl")


def renamed(twin: Twin, folder: Path, names: dict[str, str]) -> Twin:
    tensors = {}
    for name, tensor in load_file(twin.folder / "model.safetensors").items():
        before = next((each for each in names if name.startswith(each)), "")
        tensors[names.get(before, "") + name.removeprefix(before)] = tensor
    save_file(tensors, folder / "model.safetensors")
    return Twin(folder, twin.reference, twin.config)


def test_older_prefixes_and_files_mean_the_same(qwen: Twin, tmp_path: Path) -> None:
    """Names as with other prefixes, a configuration without text_config."""
    values = json.loads((qwen.folder / "config.json").read_text())
    flat = values | values["text_config"] | {"model_type": "qwen2_5_vl", "text_config": None}
    rope = {"type": "mrope", "mrope_section": [1, 1, 2]}
    flat |= {"rope_parameters": None, "rope_scaling": rope, "rope_theta": 10000.0, "torch_dtype": flat.pop("dtype")}
    del flat["text_config"]
    (tmp_path / "config.json").write_text(json.dumps(flat))
    assert load_hf(tmp_path) == qwen.config
    for prefixes in PREFIXES:
        weight = renamed(qwen, tmp_path, prefixes).decoder().layers[0].weights["qkv"]
        assert torch.equal(weight.rows(torch.arange(8)), qwen.decoder().layers[0].weights["qkv"].rows(torch.arange(8)))


def test_verify_asks_the_whole_or_builds_its_text(qwen: Twin) -> None:
    source, tokens = Source("folder", qwen.folder, "twin"), random_tokens(12)
    for how in ("auto", "dummy"):
        model = ResolvedModel(Settings(load_format=how), source, qwen.config)
        ((found,),) = hugging_face.logits_of(
            model, lambda: HfTensors(qwen.folder), "float32", [tokens], [1], lambda *_: None
        )  # fmt: skip
        torch.testing.assert_close(torch.from_numpy(found), qwen.reference_logits(tokens)[-1], atol=1e-4, rtol=1e-4)


def test_what_is_of_no_tower_is_refused_by_name(qwen: Twin, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="tensor model.ears.blocks.0.attn.proj.bias has no place in Qwen2ForCausal"):
        renamed(qwen, tmp_path, {"visual.": "model.ears."}).decoder()


def test_a_small_gemma_leaves_sizes_out_and_a_head_said_to_be_untied_is_wanted(tmp_path: Path) -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}  # fmt: skip
    values = {"architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106], "text_config": text,
              "vision_config": {}, "image_token_index": 9, "torch_dtype": "bfloat16"}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    config = load_hf(tmp_path)
    assert (config.vocab_size, config.max_model_len, config.eos_ids) == (262208, 131072, (1, 106))
    assert (config.is_tied, config.dtype) == (True, "bfloat16")
    path.write_text(
        json.dumps(values | {"tie_word_embeddings": False, "text_config": text | {"tie_word_embeddings": True}})
    )
    assert not load_hf(tmp_path).is_tied


@pytest.mark.parametrize("before", ["model.language_model.", "language_model.model.", "model."])
def test_adapters_may_have_the_names_of_the_whole(qwen: Twin, tmp_path: Path, before: str) -> None:
    module = f"{before}layers.1.self_attn.k_proj"
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    tensors = {f"base_model.model.{module}.lora_A.weight": torch.ones(2, 32),
               f"base_model.model.{module}.lora_B.weight": torch.ones(16, 2)}  # fmt: skip
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (part,) = read_adapter(tmp_path, qwen.config, 8).parts
    assert (part.module, part.place.layer, part.place.first) == (module, 1, 32)
