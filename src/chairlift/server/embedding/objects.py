"""The objects that the routes of vectors and scores answer with, field by field, in order."""

import msgspec
from msgspec import UNSET, UnsetType


class InputUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int


class EmbeddingObject(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "embedding"
    index: int
    embedding: list[float] | str  # in base64: float32, the least byte first


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "list"
    created: int
    data: list[EmbeddingObject]
    model: str
    usage: InputUsage


class RankedDocument(msgspec.Struct, frozen=True):
    text: str


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    index: int  # among the documents of the body
    document: RankedDocument | UnsetType = UNSET
    relevance_score: float


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    model: str
    results: list[Ranked]  # the most relevant first
    usage: InputUsage


class Score(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    object: str = "score"
    score: float


class ScoreList(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "list"
    created: int
    model: str
    data: list[Score]
    usage: InputUsage
