"""One sample of an answer as its tokens arrive: its text read by a `ResponseReader`, its content cut at a stop string.

Always: the events of all pushes and of `finish` joined are the sample's answer. Stop strings are looked for in content
alone, and not in the first `min_tokens` tokens. After one, nothing more comes.
"""

from collections.abc import Callable, Collection, Sequence

from chairlift.core.params import SamplingParams
from chairlift.text.detokenize import Detokenizer
from chairlift.text.responses.reading.events import Content, Event
from chairlift.text.responses.reading.reader import ResponseReader
from chairlift.text.stop import StopChecker
from chairlift.text.stream import silent_ends
from chairlift.text.tokenizer import Tokenizer


class ResponseStream:
    """`before`: the prompt's last bytes. `stop`: the stop string that ended the sample. `end_ids`: the ids that end it.
    `skip_special`: else special tokens are handed to the reader, which leaves out those that mean nothing."""

    __slots__ = ("_checker", "_detokenizer", "_ends", "_events", "_exempt", "_params", "_reader", "_written",
                 "new_call_id", "num_reasoning", "stop")  # fmt: skip

    def __init__(
        self,
        tokenizer: Tokenizer,
        before: bytes,
        params: SamplingParams,
        end_ids: Collection[int],
        reader: ResponseReader,
        skip_special: bool,
        new_call_id: Callable[[], str],
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, before, skip_special)
        self._ends = silent_ends(params, end_ids)
        self._reader = reader
        self.new_call_id = new_call_id
        self._params = params
        self._checker = self._new_checker()
        self._exempt = params.min_tokens  # coming tokens that are not searched
        self._events: list[Event] = []
        self.num_reasoning = 0  # tokens, marks among them
        self._written: list[str] = []
        self.stop: str | None = None

    def push(self, token_id: int) -> str:
        """The content that may be shown now; `events` tells it with all else."""
        was_reasoning = self._reader.is_reasoning
        text = "" if token_id in self._ends else self._detokenizer.push(token_id)
        self._written.append(text)
        content = self._take(self._reader.push(text), is_exempt=self._exempt > 0)
        self.num_reasoning += was_reasoning or self._reader.is_reasoning
        self._exempt = max(0, self._exempt - 1)
        return content

    def finish(self) -> str:
        """The content still held back when the sample ended; empty after a stop string."""
        if self.stop is not None:
            return ""
        rest = self._detokenizer.flush()
        self._written.append(rest)
        content = self._take(self._reader.push(rest) + self._reader.finish())
        return content + self._release()

    def events(self) -> list[Event]:
        """What came since this was last asked."""
        events, self._events = self._events, []
        return events

    def take_written(self) -> str:
        """The text as the model wrote it, since this was last asked."""
        written, self._written = self._written, []
        return "".join(written)

    def _take(self, events: Sequence[Event], is_exempt: bool = False) -> str:
        content = ""
        for event in events:
            if self.stop is not None:
                break
            if not isinstance(event, Content):
                content += self._release()
                self._events.append(event)
            elif self._checker is None or is_exempt:
                content += self._show(event.text)
            else:
                shown, self.stop = self._checker.push(event.text)
                content += self._show(shown)
        return content

    def _release(self) -> str:
        """Content that may have become a stop string, but for what came behind it."""
        if self._checker is None or self.stop is not None:
            return ""
        held, self._checker = self._checker.flush(), self._new_checker()
        return self._show(held)

    def _show(self, text: str) -> str:
        if text:
            self._events.append(Content(text))
        return text

    def _new_checker(self) -> StopChecker | None:
        stops = self._params.stop
        return StopChecker(stops, self._params.include_stop_str_in_output) if stops else None
