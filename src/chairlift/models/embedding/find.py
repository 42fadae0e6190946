"""What a model is served for: text, vectors or scores, by its files and by what the user asks.

An encoder makes vectors, one with a classification head scores. A decoder makes text, unless files of
sentence-transformers lie beside it or the user asks for something else. Settings that mean nothing for vectors and
scores are refused or changed here.
"""

import json
from dataclasses import replace
from typing import Any

from chairlift.config.fields import Fields
from chairlift.config.model_words import POOLING
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.embedding import bert, modernbert
from chairlift.models.embedding.bert import EncoderFamily
from chairlift.models.embedding.declared import EMBED, RERANK, AnswerTokens, EmbeddingConfig
from chairlift.models.embedding.sentence_transformers import Found, read_modules
from chairlift.models.families.reading import refuse_true
from chairlift.models.families.unread import check_unread
from chairlift.models.files.hf import read_dtype
from chairlift.models.source import Source, config_json, load_model_config
from chairlift.models.spec import ModelConfig

FAMILIES = (*bert.FAMILIES, modernbert.FAMILY)
_WITHOUT_HEAD = ("Model", "ForMaskedLM", "ForPreTraining")
_WITH_HEAD = "ForSequenceClassification"
_ENCODERS = {
    family.architecture + ending: family for family in FAMILIES for ending in (*_WITHOUT_HEAD, _WITH_HEAD)
}  # by architecture in config.json
_BY_FILES = ("auto", POOLING)
_YES_NO = AnswerTokens(true="yes", false="no")
_IDENTITY = "Identity"
_ENOUGH = 10**9  # tokenizers without a limit name a larger one
# Keys that tell nothing about what is computed here.
_HARMLESS = (
    "tie_word_embeddings", "type_vocab_size", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "reference_compile", "repad_logits_with_grad",
    "sparse_prediction", "sparse_pred_ignore_index", "deterministic_flash_attn", "initializer_cutoff_factor",
    "sentence_transformers", "sbert_ce_default_activation_function", "classifier_pooling", "output_past",
    "embedding_size", "classifiers_size",
)  # fmt: skip


def load_for_task(source: Source, settings: Settings) -> ModelConfig:
    """What makes vectors or scores has an `embedding`."""
    task = settings.task
    values = config_json(source) if source.kind == "folder" else {}
    family = _ENCODERS.get(_architecture(values))
    found = read_modules(source.folder) if source.kind == "folder" else None
    if family is not None:
        return _encoder(source, values, family, found, task)
    if task in _BY_FILES:
        without_files = EMBED if task == POOLING else "generate"
        task = without_files if found is None else EMBED if found.answer is None else RERANK
    config = load_model_config(source, settings)
    return config if task == "generate" else _decoder(source, config, found, task)


def _architecture(values: dict[str, Any]) -> str:
    named = values.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _encoder(
    source: Source, values: dict[str, Any], family: EncoderFamily, found: Found | None, task: str
) -> ModelConfig:
    config, architecture = Fields(str(source.folder / "config.json"), values), _architecture(values)
    num_labels = _num_labels(config) if architecture.endswith(_WITH_HEAD) else 0
    own = RERANK if num_labels else EMBED
    if task not in (*_BY_FILES, own):
        raise InvalidConfig(f"task {task}: {architecture} is for {own}; use --task {own}, or leave --task out")
    if num_labels > 1:
        raise config.bad("id2label", "must have one label: only scores of pairs are made, not classes")
    refuse_true(config, "is_decoder", "add_cross_attention")
    encoder, pooling = family.read(config, num_labels)
    hidden = config.size("hidden_size")
    positions = config.size("max_position_embeddings", 8192) - encoder.first_position
    if positions < 1:
        raise config.bad("max_position_embeddings", f"must be above {encoder.first_position}, where positions begin")
    embedding = EmbeddingConfig(
        task=own,
        encoder=encoder,
        pooling=pooling if num_labels else "mean",
        is_normalized=not num_labels,
        dimensions=num_labels or hidden,
        activation=_activation(config) if num_labels else "identity",
        max_len=min(positions, _tokenizer_limit(source)),
    )
    model = ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        vocab_size=config.size("vocab_size"),
        max_model_len=positions,
        layers=(),
        rms_norm_eps=encoder.norm_eps,
        dtype=read_dtype(config),
        embedding=embedding,
    )
    for key in ("architectures", "model_type", *_HARMLESS):
        config.get(key)
    return _with_files(model, found, (*source.warnings, *check_unread(config, architecture)), source)


def _decoder(source: Source, config: ModelConfig, found: Found | None, task: str) -> ModelConfig:
    if config.fallback is not None:
        raise InvalidConfig(
            f"task {task}: {config.architecture} is computed by transformers, which makes text alone here"
        )
    embedding = EmbeddingConfig(
        task=task,
        pooling="last",
        is_normalized=task == EMBED,
        dimensions=config.hidden_size if task == EMBED else 1,
        answer=None if task == EMBED else (found.answer if found is not None else None) or _YES_NO,
        activation="identity" if task == EMBED else "sigmoid",
        max_len=config.max_model_len,
    )
    # A head that vectors do not need is not loaded.
    config = replace(config, embedding=embedding, is_tied=config.is_tied or task == EMBED)
    return _with_files(config, found, config.warnings, source)


def _with_files(config: ModelConfig, found: Found | None, warnings: tuple[str, ...], source: Source) -> ModelConfig:
    embedding = config.embedding
    assert embedding is not None
    if found is not None:
        embedding = replace(embedding, **found.into(embedding))
        warnings = (*warnings, *found.warnings)
    elif not embedding.makes_scores:
        warnings = (
            *warnings,
            f"{source.folder}: no modules.json: vectors are pooled by {embedding.pooling} and normalised",
        )
    return replace(config, embedding=embedding, warnings=warnings)


def _num_labels(config: Fields) -> int:
    labels = config.get("id2label")
    config.get("label2id")
    return len(labels) if isinstance(labels, dict) else config.size("num_labels", 2)


def _activation(config: Fields) -> Any:
    """Of a score: that of sentence-transformers' files, a sigmoid where they name none."""
    newer = config.get("sentence_transformers")
    older = config.get("sbert_ce_default_activation_function")
    name = newer.get("activation_fn") if isinstance(newer, dict) else older
    kind = str(name or "Sigmoid").rpartition(".")[2]
    if kind not in (_IDENTITY, "Sigmoid"):
        key = "sentence_transformers" if isinstance(newer, dict) else "sbert_ce_default_activation_function"
        raise config.bad(key, "must name Identity or Sigmoid as the activation of scores")
    return kind.lower()


def _tokenizer_limit(source: Source) -> int:
    try:
        limit = json.loads((source.folder / "tokenizer_config.json").read_text(encoding="utf-8"))["model_max_length"]
    except (OSError, ValueError, KeyError, TypeError):
        return _ENOUGH
    return limit if type(limit) is int and 0 < limit < _ENOUGH else _ENOUGH


_FIRST_COME, _IN_TURN = "fcfs", "in-turn"
_BY_PREFIX, _BY_LOAD = "prefix", "least-loaded"


def for_embedding(settings: Settings) -> Settings:
    """Those of a model that makes vectors or scores."""
    if settings.roles is not None:
        raise InvalidConfig("roles: a model that makes vectors or scores has no decodes; leave --roles out")
    if settings.has_adapters:
        raise InvalidConfig(
            "lora: adapters are for models that make text; leave --lora, --lora-dir and enable_lora out"
        )
    return replace(
        settings,
        prefix_cache=False,  # every position of an input sees the whole of it
        move_kv="off",
        preemption="recompute",
        host_memory=None,
        policy=_IN_TURN if settings.policy == _FIRST_COME else settings.policy,
        router=_BY_LOAD if settings.router == _BY_PREFIX else settings.router,
    )
