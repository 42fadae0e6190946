"""BERT (MiniLM, BGE, E5, GTE), RoBERTa and XLM-RoBERTa: norms after each sum, learned positions, GELU.

RoBERTa counts positions from behind that of its padding token, so its table has rows that no input reaches.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from chairlift.config.fields import Fields
from chairlift.models.embedding.declared import EncoderConfig, EncoderLayerSpec, EncoderNames, HeadSpec, Pooling
from chairlift.models.families.reading import num_layers, require
from chairlift.models.mixers.attention import AttentionSpec

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu",
    "swish": "silu", "tanh": "tanh",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EncoderFamily:
    architecture: str  # without what stands for its head: "Bert" of BertModel and BertForSequenceClassification
    model_type: str
    read: Callable[[Fields, int], tuple[EncoderConfig, Pooling]]  # with so many labels; 0: none. What its head pools


BERT_NAMES = EncoderNames(
    prefix="bert.",
    embedding="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    types="embeddings.token_type_embeddings",
    embedding_norm="embeddings.LayerNorm",
    layer="encoder.layer.{}.",
    qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
    output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    feed_forward_norm="output.LayerNorm",
    redundant=("embeddings.position_ids", "embeddings.token_type_ids", "pooler.", "cls.", "lm_head."),
)


def read_activation(config: Fields, key: str, default: str = "gelu") -> str:
    given = config.get(key) or default
    if not isinstance(given, str) or given not in ACTIVATIONS:
        raise config.bad(key, f"must be one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[given]


def read_heads(config: Fields) -> AttentionSpec:
    heads, hidden = config.size("num_attention_heads"), config.size("hidden_size")
    if hidden % heads or hidden // heads % 2:
        raise config.bad("hidden_size", f"must be an even multiple of num_attention_heads {heads}")
    dim = hidden // heads
    return AttentionSpec(num_heads=heads, num_kv_heads=heads, head_dim=dim, scale=dim**-0.5, rotation=None)


def _read(config: Fields, prefix: str, first: int, head: HeadSpec | None) -> EncoderConfig:
    require(config, "position_embedding_type", "absolute")
    layer = EncoderLayerSpec(
        attention=read_heads(config),
        width=config.size("intermediate_size"),
        activation=read_activation(config, "hidden_act"),
    )
    return EncoderConfig(
        layers=(layer,) * num_layers(config),
        norm_eps=config.positive("layer_norm_eps", 1e-12),
        has_norm_before=False,
        num_positions=config.size("max_position_embeddings"),
        first_position=first,
        num_types=config.size("type_vocab_size", 2),
        names=replace(BERT_NAMES, prefix=prefix),
        head=head,
    )


def _bert(config: Fields, num_labels: int) -> tuple[EncoderConfig, Pooling]:
    head = HeadSpec(num_labels=num_labels, activation="tanh", dense="bert.pooler.dense", out="classifier")
    return _read(config, "bert.", 0, head if num_labels else None), "cls"


def _roberta(config: Fields, num_labels: int) -> tuple[EncoderConfig, Pooling]:
    head = HeadSpec(num_labels=num_labels, activation="tanh", dense="classifier.dense", out="classifier.out_proj")
    padding = config.token_id("pad_token_id")
    return _read(config, "roberta.", (1 if padding is None else padding) + 1, head if num_labels else None), "cls"


FAMILIES = tuple(
    EncoderFamily(*family)
    for family in (("Bert", "bert", _bert), ("Roberta", "roberta", _roberta), ("XLMRoberta", "xlm-roberta", _roberta))
)
