"""What a model that makes vectors or scores is, as values: its encoder, its pooling, its head and its texts.

A decoder may make them too: then there is no encoder here, and its layers are those of `ModelConfig`.
"""

from dataclasses import dataclass, field
from typing import Literal

from chairlift.models.mixers.attention import AttentionSpec

Pooling = Literal["cls", "mean", "max", "last", "mean_sqrt_len"]
EMBED, RERANK = "embed", "rerank"  # tasks beside "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderLayerSpec:
    """norms before:  residual += attention(norm(residual)); residual += feed_forward(norm(residual))
    norms after:      x = norm(x + attention(x)); x = norm(x + feed_forward(x))"""

    attention: AttentionSpec  # every position sees all others
    reach: int = 0  # positions that it sees to each side; 0: all
    width: int  # of the feed-forward
    activation: str = "gelu"  # one of ENCODER_ACTIVATIONS
    is_gated: bool = False  # down(activation(first half) * second half)
    has_attention_norm: bool = True  # where norms are before: one that the embedding's norm stands for is left out

    @property
    def mixer(self) -> AttentionSpec:
        """As a decoder's layer has one."""
        return self.attention


ENCODER_ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "tanh", "silu")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderNames:
    """What tensors are called in the files, without .weight or .bias and without what a head puts before all names."""

    prefix: str  # that files with a head have before the encoder's names, such as "bert."
    embedding: str
    positions: str = ""
    types: str = ""
    embedding_norm: str
    layer: str  # before each of the following; {} stands for its number
    qkv: tuple[str, ...]
    output: str
    attention_norm: str
    up: str
    down: str
    feed_forward_norm: str
    final_norm: str = ""
    redundant: tuple[str, ...] = ()  # beginnings of names of what a file may have besides


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """out(norm(activation(dense(pooled))))"""

    num_labels: int
    activation: str  # one of ENCODER_ACTIVATIONS
    dense: str  # names, with all that is before them
    out: str
    norm: str = ""  # empty: there is none
    has_dense_bias: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    layers: tuple[EncoderLayerSpec, ...]
    norm_eps: float
    has_norm_before: bool
    has_norm_bias: bool = True
    has_attention_bias: bool = True
    has_feed_forward_bias: bool = True
    num_positions: int = 0  # rows of the table of positions; 0: there is none
    first_position: int = 0  # the row of the first token
    num_types: int = 0  # rows of the table of token types; 0: there is none
    names: EncoderNames
    head: HeadSpec | None = None  # None: vectors are made


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTokens:
    """Tokens whose logits after a prompt are a decoder's scores: of "yes" and "no"."""

    true: str | int
    false: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingConfig:
    task: str  # EMBED or RERANK
    encoder: EncoderConfig | None = None  # None: the decoder's layers
    pooling: Pooling = "mean"
    is_normalized: bool = False
    dimensions: int = 0  # of a vector, or labels
    answer: AnswerTokens | None = None  # of a decoder that scores
    activation: Literal["identity", "sigmoid"] = "identity"  # of scores
    similarity: Literal["cosine", "dot"] = "cosine"  # of two vectors
    max_len: int  # longest input in tokens, unless the settings say otherwise
    is_lower_case: bool = False  # texts are made so
    prompts: tuple[tuple[str, str], ...] = field(default=())  # put before texts, by name
    default_prompt: str | None = None  # its name; None: none

    @property
    def makes_scores(self) -> bool:
        """Of a pair of texts; else vectors."""
        return self.task == RERANK
