"""`chairlift plan` on folders that cannot be served: one line that names the file and what is wrong, no traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.cli.main import main

SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 56, "vocab_size": 97, "max_position_embeddings": 64,
}  # fmt: skip


def model(architecture: str, **keys: Any) -> dict[str, Any]:
    return {"architectures": [architecture], **SIZES, **keys}


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ([1, 2], "must hold a JSON object"),
        (None, "must hold a JSON object"),
        ({}, "architectures is missing"),
        (model("LlamaForCausalLM", logit_scale=0.1), "logit_scale is not supported in LlamaForCausalLM"),
        (
            model("MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=5),
            "num_experts_per_tok must be at most",
        ),
        (
            model("Glm4MoeForCausalLM", n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=24, n_group=3),
            "n_group must divide the 8 experts",
        ),
        (model("GptOssForCausalLM"), "rope_scaling must be a map"),
        (model("MambaForCausalLM", state_size=16), "state_size tells of recurrent layers"),
        (model("FalconH1ForCausalLM", mamba_d_state=256), "mamba_d_state tells of recurrent layers"),
        (model("Lfm2ForCausalLM", layer_types=["conv"] * 2), "layer_types has 'conv'"),
        (model("GPTNeoXForCausalLM", layer_types=[["full_attention"]]), "layer_types has ['full_attention'] layers"),
        (model("CLIPVisionModel"), "architecture 'CLIPVisionModel' is not supported"),
        (model("Llama4ForConditionalGeneration"), "architecture 'Llama4ForConditionalGeneration' is not supported"),
        (
            model("Mistral3ForConditionalGeneration", text_config={"model_type": "llama"}),
            "text_config must have model_type mistral or ministral3, got 'llama'",
        ),
        (
            model("Gemma3ForConditionalGeneration", text_config=[]),
            "text_config must have model_type gemma3_text, got None",
        ),
    ],
    ids=lambda value: value["architectures"][0] if isinstance(value, dict) and value else None,
)
def test_it_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: Any, complaint: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["plan", str(tmp_path), "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"chairlift: error: {tmp_path}/config.json: {complaint}")
