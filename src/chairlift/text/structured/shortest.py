"""The shortest text that a shape allows, and the fewest tokens that spell it: fewer are refused before anything runs.

Always: a schema that no finite text satisfies is refused, with its place. The search takes little time: it ends
without a result where there is none left.
"""

from collections import defaultdict
from collections.abc import Iterator

from llguidance import LLMatcher

from chairlift.core.structured import Structured
from chairlift.text.structured.grammar import LIMITS, grammar_of
from chairlift.text.structured.shortest_json import NoAnswer, shortest_json
from chairlift.text.structured.shortest_match import Cost, Unknown, limited, shortest_match
from chairlift.text.structured.source import choices, loaded, wrong
from chairlift.text.structured.vocabulary import byte_vocabulary
from chairlift.text.tokenizer import Tokenizer

_HEAD = 3  # bytes of a token by which those that may come next are found


def shortest_text(structured: Structured, cost: Cost = len) -> str | None:
    """Of several texts, the one of least cost; None where it cannot be told. It may be none that the grammar allows:
    `is_allowed` tells."""
    if structured.kind == "regex":
        return shortest_match(structured.source, limited(cost))
    try:
        if structured.kind == "choice":
            return min(choices(structured.source), key=limited(cost))
        if structured.kind != "json_schema":
            return None
        return shortest_json(loaded(structured.source), cost)
    except Unknown:
        return None
    except NoAnswer as error:
        raise wrong(f"at {error.place or '/'}: {error}") from error


def is_allowed(structured: Structured, text: str) -> bool:
    matcher = LLMatcher(byte_vocabulary(), grammar_of(structured), log_level=0, limits=LIMITS)
    spelled = byte_vocabulary().tokenize_bytes(text.encode(errors="replace"))
    return not matcher.is_error() and matcher.try_consume_tokens(spelled) == len(spelled) and matcher.is_accepting()


class Spellings:
    """The tokens of a vocabulary by their bytes; made once for a model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        visible = (token for token in range(tokenizer.vocab_size) if token not in tokenizer.special_ids)
        self._known = {spelled for token in visible if (spelled := tokenizer.spelling[token])}
        lengths: defaultdict[bytes, set[int]] = defaultdict(set)
        for spelled in self._known:
            lengths[spelled[:_HEAD]].add(len(spelled))
        self._lengths = {head: sorted(found) for head, found in lengths.items()}  # of tokens that begin alike

    def num_tokens_of(self, text: str) -> int | None:
        """The fewest tokens that spell the text; None where none do."""
        spelled = text.encode(errors="replace")
        fewest: list[int | None] = [0] + [None] * len(spelled)
        for start in range(len(spelled)):
            before = fewest[start]
            if before is None:
                continue
            for end in self._ends(spelled, start):
                known = fewest[end]
                fewest[end] = before + 1 if known is None else min(known, before + 1)
        return fewest[-1]

    def _ends(self, spelled: bytes, start: int) -> Iterator[int]:
        """Where a token may end that begins here."""
        for num in range(1, _HEAD + 1):
            for length in self._lengths.get(spelled[start : start + num], ()) if start + num <= len(spelled) else ():
                if spelled[start : start + length] in self._known and start + length <= len(spelled):
                    yield start + length
