"""Puts the tables of models and of what is not yet there into the READMEs.

    python benchmarks/readme/tables.py [--check]

Models come from the families that the server declares, what is missing from `not_yet.yaml`. A family without a name
that people know is an error. --check: changes nothing, and ends with 1 where a README is not as it would be made.
"""

import argparse
import re
import sys
from pathlib import Path

import yaml

from chairlift.models.families.known import FAMILIES

_ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "README.zh.md")
_BLOCK = re.compile(r"(<!-- made by: python benchmarks/readme/tables.py -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES = {
    "LlamaForCausalLM": "Llama 1 to 3, SmolLM2 and their like", "MistralForCausalLM": "Mistral",
    "Qwen2ForCausalLM": "Qwen 2, 2.5", "Qwen3ForCausalLM": "Qwen 3", "Gemma2ForCausalLM": "Gemma 2",
    "Gemma3ForCausalLM": "Gemma 3", "Gemma4ForCausalLM": "Gemma 4",
    "Gemma4UnifiedForCausalLM": "Gemma 4 12B", "Phi3ForCausalLM": "Phi 3, 4", "GraniteForCausalLM": "Granite 3",
    "GraniteMoeHybridForCausalLM": "Granite 4 (dense)", "SmolLM3ForCausalLM": "SmolLM3", "Glm4ForCausalLM": "GLM-4",
    "Olmo2ForCausalLM": "OLMo 2", "Olmo3ForCausalLM": "OLMo 3", "Exaone4ForCausalLM": "Exaone 4",
    "SeedOssForCausalLM": "Seed-OSS", "Ministral3ForCausalLM": "Ministral 3",
    "Cohere2ForCausalLM": "Command R7B", "Starcoder2ForCausalLM": "Starcoder 2", "MixtralForCausalLM": "Mixtral",
    "Qwen3MoeForCausalLM": "Qwen3-MoE", "Glm4MoeForCausalLM": "GLM-4.5", "GptOssForCausalLM": "GPT-OSS",
    "DeepseekV2ForCausalLM": "DeepSeek-V2-Lite", "DeepseekV3ForCausalLM": "V3",
    "Glm4MoeLiteForCausalLM": "GLM-4.7-Flash", "Qwen3NextForCausalLM": "Qwen3-Next",
    "Qwen3_5ForCausalLM": "Qwen3.5 to 3.8", "Qwen3_5MoeForCausalLM": "Qwen3.5-MoE",
}  # fmt: skip
MIXTURES = (
    "MixtralForCausalLM", "Qwen3MoeForCausalLM", "Glm4MoeForCausalLM", "GptOssForCausalLM", "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM", "Qwen3NextForCausalLM", "Qwen3_5MoeForCausalLM",
)  # fmt: skip
_ENCODERS = "BERT and MiniLM, RoBERTa, XLM-R, ModernBERT, Qwen3-Embedding, Qwen3-Reranker"
_FILES = "safetensors, GGUF (F32 to the K, IQ and TQ types, MXFP4), MindSpore checkpoints"
HEADS = {"README.md": ("dense", "mixtures of experts", "embeddings and reranking", "files", "missing", "meanwhile"),
         "README.zh.md": ("稠密模型", "混合专家", "向量与重排", "文件", "缺少", "目前的办法")}  # fmt: skip


def models(page: str) -> str:
    known = [family.architecture for family in FAMILIES]
    dense = [NAMES[each] for each in known if each not in MIXTURES]
    mixed = [NAMES[each] for each in known if each in MIXTURES]
    cells = (", ".join(dense), ", ".join(mixed), _ENCODERS, _FILES)
    rows = [f"| {head} | {cell} |" for head, cell in zip(HEADS[page], cells, strict=False)]
    return "\n".join(["| | |", "|---|---|", *rows]) + "\n"


def missing(page: str) -> str:
    items = yaml.safe_load(Path(__file__).with_name("not_yet.yaml").read_text())
    shown = {"README.md": ("what", "meanwhile"), "README.zh.md": ("what_zh", "meanwhile_zh")}[page]
    rows = [f"| {item[shown[0]]} | {item[shown[1]]} |" for item in items]
    return "\n".join([f"| {HEADS[page][4]} | {HEADS[page][5]} |", "|---|---|", *rows]) + "\n"


def made(page: str) -> str:
    """The page with its blocks as they should be."""
    blocks = iter((models(page), missing(page)))
    text, count = _BLOCK.subn(lambda found: found[1] + next(blocks) + found[2], (_ROOT / page).read_text())
    assert count == 2, f"{page} has {count} blocks"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    for page in PAGES:
        text = made(page)
        if is_check and text != (_ROOT / page).read_text():
            sys.exit(f"{page} is not as it would be made: run python benchmarks/readme/tables.py")
        (_ROOT / page).write_text(text)


if __name__ == "__main__":
    main()
