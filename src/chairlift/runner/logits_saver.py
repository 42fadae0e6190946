"""Saves the logits at every 100th position of every request while an engine runs, in batches of any size.

Always: a row is saved once the token that was chosen from it is part of the text, so steps in flight beyond a text's
end leave none. Members of beam searches have no rows: their texts change backwards. Never waits for the disk.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Event, Finished, Token
from chairlift.core.ids import RequestId
from chairlift.core.ports import Unobserved
from chairlift.core.request import Request
from chairlift.runner.hooks import LogitsRecorder, LogitsRow, ShowsLogits
from chairlift.telemetry.logit_files import EVERY, name_of, prefix_digest, read_index, request_of
from chairlift.telemetry.row_writer import RowWriter, SavedRow


@dataclass(slots=True)
class _Text:
    index: int  # of the request
    num_prompt: int
    tokens: list[int]
    num_resumed: int  # tokens that it had when it came here


class LogitsSaver(Unobserved):
    def __init__(self, folder: Path, runner: ShowsLogits) -> None:
        """The folder of an engine before this one, if it has files."""
        try:
            self._writer = RowWriter(folder)
            index = read_index(folder)
        except OSError as error:
            raise InvalidConfig(f"{folder}: cannot be written: {error.strerror or error}") from error
        self._saved_before = Counter(index.values())  # equal texts have a row each
        self._num_requests = max((1 + request_of(name) for name in index), default=0)
        self._texts: dict[RequestId, _Text] = {}
        self._unsettled: dict[tuple[RequestId, int], LogitsRow] = {}
        self._recorder = LogitsRecorder(lambda _, position: position % EVERY == 0)
        runner.on_logits = self._recorder

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        for request in samples:
            if request.params.beam_width:
                continue
            tokens = [*request.prompt, *request.output]
            self._texts[request.id] = _Text(self._num_requests, len(request.prompt), tokens, len(tokens))
            self._num_requests += 1
            if request.output:
                self._count_lost(request, tokens)

    def _count_lost(self, request: Request, tokens: list[int]) -> None:
        """Rows that belong to tokens of the engine before, which may have ended before it wrote them."""
        positions = range(len(request.prompt) - 1, len(tokens) - 1)
        digests = [prefix_digest(tokens[: at + 1]) for at in positions if at % EVERY == 0]
        if lost := sum(not self._was_saved(digest) for digest in digests):
            self._writer.lost(lost)

    def _was_saved(self, prefix: str) -> bool:
        """By the engine before; each of its rows is one request's."""
        is_there = self._saved_before[prefix] > 0
        self._saved_before[prefix] -= is_there
        return is_there

    def happened(self, events: Sequence[Event]) -> None:
        ended = []
        for event in events:
            if isinstance(event, Token):
                if (text := self._texts.get(event.request)) is not None:
                    text.tokens.append(event.token)
                    if event.finish is not None:
                        ended.append(event.request)
            elif isinstance(event, Finished):
                ended.append(event.request)
        for row in self._recorder.take(is_waiting=False):
            if row.request in self._texts:
                self._unsettled[row.request, row.position] = row  # a step that is run again brings it again
        self._settle(ended)

    def _settle(self, ended: Sequence[RequestId]) -> None:
        for (request, position), found in list(self._unsettled.items()):
            text = self._texts[request]
            if position + 1 < len(text.tokens):
                self._save(text, found)
                del self._unsettled[request, position]
            elif request in ended:
                del self._unsettled[request, position]
        for request in ended:
            self._texts.pop(request, None)

    def _save(self, text: _Text, found: LogitsRow) -> None:
        tokens = text.tokens[: found.position + 1]
        prefix = prefix_digest(tokens)
        if text.num_resumed == len(tokens) > text.num_prompt and self._was_saved(prefix):
            return  # the engine before had written it, but its token was not sent
        name = name_of(tokens[: text.num_prompt], tokens[text.num_prompt :], found.position)
        self._writer.put(SavedRow(text.index, name, prefix, found.row))

    def close(self) -> None:
        self._writer.close()
