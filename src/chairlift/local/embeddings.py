"""Vectors and scores in this process: texts in, numbers out, in the order of the texts."""

from collections.abc import Sequence
from itertools import count

from chairlift.core.attributes import Attributes
from chairlift.core.errors import InvalidRequest
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.live.wire.shared_switchboard import SharedSwitchboard
from chairlift.local.completing import raise_failure
from chairlift.local.outputs import EmbeddingOutput, EmbeddingRequestOutput, ScoringOutput, ScoringRequestOutput
from chairlift.models.embedding.declared import EmbeddingConfig
from chairlift.text.embedding.texts import EmbeddingTexts, Framed
from chairlift.text.embedding.vectors import Vectors, check_dimensions, similarities, vectors_of
from chairlift.text.prompt_forms import read_texts
from chairlift.text.tokenizer import Tokenizer

ONE_TOKEN = SamplingParams(max_tokens=1, temperature=0.0)  # that ends a request and means nothing


class Embedding:
    def __init__(
        self, tokenizer: Tokenizer, config: EmbeddingConfig, limits: Limits, shared: SharedSwitchboard
    ) -> None:
        self._tokenizer = tokenizer
        self._config = config
        self._texts = EmbeddingTexts.of(tokenizer, config)
        self._max_len = limits.max_model_len - 1
        self._shared = shared
        self._groups = count(1)

    def embed(
        self, texts: str | Sequence[str], prompt_name: str | None, dimensions: int | None, truncate: int | None
    ) -> list[EmbeddingRequestOutput]:
        given = _listed(texts, "prompts")
        if self._config.makes_scores:
            raise InvalidRequest("prompts", "this model scores pairs and makes no vectors; use score")
        check_dimensions(dimensions, self._config.dimensions)
        inputs = [self._input(self._texts.prompted(text, prompt_name), truncate) for text in given]
        keys, made = self._made(inputs)
        found = zip(keys, inputs, vectors_of(made, dimensions), strict=True)
        return [
            EmbeddingRequestOutput(str(key), list(each.tokens), EmbeddingOutput(vector)) for key, each, vector in found
        ]

    def score(
        self, queries: str | Sequence[str], documents: str | Sequence[str], truncate: int | None
    ) -> list[ScoringRequestOutput]:
        """Of each pair; one query goes with all documents."""
        second = _listed(documents, "documents")
        first = [queries] * len(second) if isinstance(queries, str) else read_texts(queries, "queries")
        if len(first) != len(second):
            raise InvalidRequest("queries", f"{len(first)} queries for {len(second)} documents; give one, or as many")
        keys, scores = self._scored(first, second, truncate)
        return [ScoringRequestOutput(str(key), ScoringOutput(score)) for key, score in zip(keys, scores, strict=True)]

    def _scored(
        self, queries: Sequence[str], documents: Sequence[str], truncate: int | None
    ) -> tuple[list[int], list[float]]:
        texts = self._texts
        if self._config.makes_scores:
            keys, made = self._made([self._pair(*pair, truncate) for pair in zip(queries, documents, strict=True)])
            return keys, vectors_of(made)[:, 0].tolist()
        _, first = self._vectors([texts.as_query(query) for query in queries], truncate)
        keys, second = self._vectors([texts.as_document(text) for text in documents], truncate)
        return keys, similarities(first, second, self._config.similarity)

    def _pair(self, query: str, document: str, truncate: int | None) -> Framed:
        texts, max_len = self._texts, self._max_len
        if texts.takes_pairs_as_text:
            return texts.single(self._ids(texts.before_document(query) + document), max_len, truncate, "documents")
        first, second = (self._ids(texts.prompted(text)) for text in (query, document))
        return texts.pair(first, second, max_len, truncate, "documents")

    def _vectors(self, texts: Sequence[str], truncate: int | None) -> tuple[list[int], Vectors]:
        keys, made = self._made([self._input(text, truncate) for text in texts])
        return keys, vectors_of(made)

    def _input(self, text: str, truncate: int | None) -> Framed:
        return self._texts.single(self._ids(text), self._max_len, truncate, "prompts")

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False)

    def _made(self, inputs: Sequence[Framed]) -> tuple[list[int], list[bytes]]:
        """Keys of the requests, and what was made of each."""
        group = str(next(self._groups))
        requests = [(each.tokens, ONE_TOKEN, 1, Attributes(group=group, second_at=each.second_at)) for each in inputs]
        made: dict[int, bytes] = {}
        with self._shared.asking(requests) as reader:
            for output in self._shared.outputs(reader):
                raise_failure(output)
                if output.vector is not None:
                    made[output.key] = output.vector
                if len(made) == len(inputs):
                    break
            return reader.keys, [made[key] for key in reader.keys]


def _listed(texts: str | Sequence[str], name: str) -> list[str]:
    return read_texts([texts] if isinstance(texts, str) else texts, name)
