"""Vectors and scores in this process: texts in, numbers out, in the order of the texts."""

from collections.abc import Sequence
from itertools import count

from chairlift.completions import raise_failure
from chairlift.config.embedding.declared import EmbeddingConfig
from chairlift.core.attributes import Attributes
from chairlift.core.errors import InvalidRequest
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.live.wire.shared_switchboard import SharedSwitchboard
from chairlift.text.embedding.texts import EmbeddingTexts, Framed
from chairlift.text.embedding.vectors import Vectors, check_dimensions, similarities, vectors_of
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
        self, texts: Sequence[str], prompt_name: str | None, dimensions: int | None, truncate: int | None
    ) -> Vectors:
        if self._config.makes_scores:
            raise InvalidRequest("texts", "this model scores pairs and makes no vectors; use score")
        check_dimensions(dimensions, self._config.dimensions)
        return self._vectors([self._texts.prompted(text, prompt_name) for text in texts], dimensions, truncate)

    def score(self, queries: Sequence[str], documents: Sequence[str], truncate: int | None) -> list[float]:
        """Of each pair."""
        texts = self._texts
        if not self._config.makes_scores:
            first = self._vectors([texts.as_query(query) for query in queries], None, truncate)
            second = self._vectors([texts.as_document(text) for text in documents], None, truncate)
            return similarities(first, second, self._config.similarity)
        inputs = [self._pair(*pair, truncate) for pair in zip(queries, documents, strict=True)]
        found: list[float] = vectors_of(self._made(inputs))[:, 0].tolist()
        return found

    def _pair(self, query: str, document: str, truncate: int | None) -> Framed:
        texts, max_len = self._texts, self._max_len
        if texts.takes_pairs_as_text:
            return texts.single(self._ids(texts.joined(query, document, None)), max_len, truncate, "documents")
        first, second = (self._ids(texts.prompted(text)) for text in (query, document))
        return texts.pair(first, second, max_len, truncate, "documents")

    def _vectors(self, texts: Sequence[str], dimensions: int | None, truncate: int | None) -> Vectors:
        inputs = [self._texts.single(self._ids(text), self._max_len, truncate, "texts") for text in texts]
        return vectors_of(self._made(inputs), dimensions)

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False)

    def _made(self, inputs: Sequence[Framed]) -> list[bytes]:
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
            return [made[key] for key in reader.keys]
