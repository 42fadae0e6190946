"""The text of one sample as its tokens arrive: detokenised, and cut at the first stop string.

Always: the pushes and `finish` joined are the sample's text. The first `min_tokens` tokens are not searched for stop
strings. A token that ends the sample has no text, unless special tokens are shown or stop tokens included.
"""

from collections.abc import Collection

from chairlift.core.params import SamplingParams
from chairlift.text.detokenize import Detokenizer
from chairlift.text.stop import StopChecker
from chairlift.text.tokenizer import Tokenizer


class TextStream:
    """`before`: the prompt's last bytes. `stop`: the stop string that ended the sample. `end_ids`: the ids that end it,
    special or not."""

    __slots__ = ("_checker", "_detokenizer", "_ends", "_exempt", "stop")

    def __init__(
        self, tokenizer: Tokenizer, before: bytes, params: SamplingParams, end_ids: Collection[int] = ()
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, before, params.skip_special_tokens)
        self._checker = StopChecker(params.stop, params.include_stop_str_in_output) if params.stop else None
        self._exempt = params.min_tokens  # coming tokens that are not searched
        self._ends = silent_ends(params, end_ids)
        self.stop: str | None = None

    def push(self, token_id: int) -> str:
        """The text that may be shown now."""
        text = "" if token_id in self._ends else self._detokenizer.push(token_id)
        if self._checker is None:
            return text
        if self._exempt:
            self._exempt -= 1
            return text
        text, self.stop = self._checker.push(text)
        return text

    def finish(self) -> str:
        """The text still held back when the sample ended; empty after a stop string."""
        if self.stop is not None:
            return ""
        text = self._detokenizer.flush()
        if self._checker is None:
            return text
        shown, self.stop = self._checker.push(text)
        return shown + self._checker.flush()


def silent_ends(params: SamplingParams, end_ids: Collection[int]) -> frozenset[int]:
    """The ids without text of their own."""
    asked = frozenset(params.stop_token_ids)
    ends = frozenset() if params.include_stop_str_in_output else asked
    if params.skip_special_tokens:
        ends |= frozenset(end_ids) - asked
    return ends
