"""A request in flight: its arrival, its answers, its HTTP status, and the fields of its body that had no effect.

Those fields are named in a response header and in the request log. Clients send more than a server knows, so unknown
fields are accepted; but a misspelt `temprature` should show.
"""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request

from chairlift.core.errors import ChairliftError, InvalidRequest
from chairlift.server.admission.cost import Cost

if TYPE_CHECKING:
    from chairlift.server.answer import Answer


class Latencies(NamedTuple):
    ttft_s: float
    tpot_s: float | None  # over its samples; None for one token, or where all came at once
    total_s: float


@dataclass(slots=True, eq=False)
class Record:
    id: str
    is_traced: bool
    keeps_text: bool
    arrived: float = field(default_factory=time.monotonic)
    status: int | None = None
    is_gone: bool = False  # the client left
    ignored: list[str] = field(default_factory=list)  # fields of the body that had no effect
    num_unnamed: int = 0  # more of them
    answers: "Sequence[Answer]" = ()  # to its prompts, once all were accepted
    cost: Cost = field(default_factory=Cost)

    def outcome(self) -> tuple[str, str]:
        """How it ended and why; both from small sets."""
        if self.is_gone:
            return "aborted", "client"
        if self.status is None:
            return "failed", "internal"
        has_begun = any(answer.first is not None for answer in self.answers)
        if 400 <= self.status < 500 or (self.status == 503 and not has_begun):
            return "refused", str(self.status)
        if self.status >= 500:
            return "failed", str(self.status)
        errors = [answer.error for answer in self.answers if answer.error is not None]
        finishes = [answer.finish for answer in self.answers]
        # A stream that had begun, or a route that always answers 200.
        if errors and not isinstance(errors[0], InvalidRequest):
            return "failed", _reason(errors[0])
        if not finishes or None in finishes:
            return "refused", "invalid"
        if "abort" in finishes:
            return "aborted", "engine"
        return "finished", "length" if "length" in finishes else str(finishes[0])

    def num_tokens(self) -> tuple[int, int, int]:
        """Of its prompts, found in the cache, and generated."""
        counts = ((len(answer.prompt), answer.num_cached, answer.num_output) for answer in self.answers)
        prompt, cached, output = map(sum, zip((0, 0, 0), *counts, strict=True))
        return prompt, cached, output

    def latencies(self, answer: "Answer") -> Latencies | None:
        """None for an unfinished answer."""
        if answer.first is None or answer.last is None or answer.finish not in ("stop", "length"):
            return None
        num_each = answer.num_output / answer.params.num_samples
        has_gaps = num_each > 1 and not answer.params.beam_width
        tpot_s = (answer.last - answer.first) / (num_each - 1) if has_gaps else None
        return Latencies(answer.first - self.arrived, tpot_s, answer.last - self.arrived)


def record_of(http: Request) -> Record:
    record: Record = http.scope["record"]
    return record


def _reason(error: Exception) -> str:
    if not isinstance(error, ChairliftError):
        return "internal"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


HEADER = "X-Chairlift-Ignored"
_MAX_NAMES = 20
_MAX_LENGTH = 60
_UNFIT = re.compile(r"[^!-+\-.-~]")  # for a list with commas in a header


def ignore(http: Request, names: Iterable[object]) -> None:
    """Adds to those that were ignored before. Names may be of other types on the llm-serving routes, which read lists
    of pairs as objects."""
    record = record_of(http)
    for name in dict.fromkeys(map(str, names)):
        shown = _UNFIT.sub("?", name[:_MAX_LENGTH])
        if len(record.ignored) == _MAX_NAMES:
            record.num_unnamed += 1
        elif shown not in record.ignored:
            record.ignored.append(shown)


def names_of(record: Record) -> list[str]:
    more = [f"and-{record.num_unnamed}-more"] if record.num_unnamed else []
    return [*record.ignored, *more]
