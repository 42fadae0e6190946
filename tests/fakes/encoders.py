"""Tiny random encoders as Hugging Face folders, with the reference that made them, and real tokenizers around them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import processors

from chairlift.config.settings import Settings
from chairlift.models.embedding.find import load_for_task
from chairlift.models.source import locate
from chairlift.runner.embedding.bodies import Embedder
from chairlift.runner.embedding.load import load_embedder
from chairlift.runner.embedding.runner import EmbeddingRunner

WORDS = (
    "the", "lift", "goes", "up", "hill", "and", "down", "again", "while", "snow", "falls", "on", "alps", "pasta", "is",
    "not", "mountain", "what", "are",
)  # fmt: skip
_SHAPE: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 66, "pad_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": {"layer_norm_eps": 1e-6},
    "XLMRoberta": {"pad_token_id": 1, "type_vocab_size": 1},
    "Roberta": {"pad_token_id": 1, "type_vocab_size": 1},
    "ModernBert": {
        "local_attention": 6,
        "global_attn_every_n_layers": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}


@dataclass
class EncoderTwin:
    folder: Path
    reference: Any

    def runner(self, **settings: Any) -> EmbeddingRunner:
        settings = {"model": str(self.folder), "dtype": "float64", "kernels": "torch", **settings}
        source = locate(str(self.folder))
        task = settings.pop("task", "auto")
        runner = load_embedder(
            Settings(**settings), source, load_for_task(source, Settings(task=task, **settings))
        ).runner
        assert isinstance(runner, EmbeddingRunner)
        return runner

    def model(self, **settings: Any) -> Embedder:
        return self.runner(**settings)._model


def make_encoder(folder: Path, family: str, has_head: bool = False, **changes: Any) -> EncoderTwin:
    torch.manual_seed(3)
    labels = {"id2label": {0: "score"}, "label2id": {"score": 0}} if has_head else {}
    config = getattr(transformers, f"{family}Config")(**{**_SHAPE, **FAMILIES[family], **labels, **changes})
    config._attn_implementation = "eager"
    ending = "ForSequenceClassification" if has_head else "Model"
    reference = getattr(transformers, family + ending)(config).eval()
    with torch.no_grad():  # so large that attention matters
        for parameter in reference.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.25 + (1.0 if parameter.dim() == 1 else 0.0))
    reference.save_pretrained(folder)
    return EncoderTwin(folder, reference)


def write_modules(folder: Path, pooling: dict[str, Any], *more: str, **settings: Any) -> None:
    """The files of sentence-transformers; `more`: kinds of modules after pooling."""
    kinds = ["Transformer", "Pooling", *more]
    paths = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds) if index)]
    listed = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in zip(kinds, paths, strict=True)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))


def write_word_tokenizer(folder: Path) -> None:
    """Words and the tokens around them, as BERT has them."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b"]
    words = {word: index for index, word in enumerate(dict.fromkeys([*special, *WORDS]))}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", words["[CLS]"]), ("[SEP]", words["[SEP]"])],
    )
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"cls_token": "[CLS]", "model_max_length": 48}))


def write_encoder(folder: Path, has_head: bool) -> Path:
    """A whole folder: one that makes vectors, or with a head one that scores pairs."""
    make_encoder(folder, "Bert", has_head)
    write_word_tokenizer(folder)
    if not has_head:
        write_modules(folder, {"pooling_mode": "mean"}, "Normalize", prompts={"query": "what are "})
    return folder
