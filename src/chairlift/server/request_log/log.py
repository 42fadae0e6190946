"""Records ended requests as metrics, log lines and spans, each if enabled.

Always: prompts and answers are written only with `--log-prompts`.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from chairlift.config.keys import ApiKey
from chairlift.server.request_log.record import Record, names_of
from chairlift.telemetry.metrics.front_end import FrontEndMetrics
from chairlift.telemetry.phases import Phase, phases
from chairlift.telemetry.spans import RequestSpan, Spans

_log = logging.getLogger("chairlift.requests")
_ID = re.compile(rb"[!-~]{1,128}")
_CHATS = ("/v1/chat/", "/v1/messages", "/v1/responses")
_TRACE_HEADERS = (b"traceparent", b"tracestate")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    model: str = ""
    metrics: FrontEndMetrics | None = None
    spans: Spans | None = None
    logs: bool = False
    text_of: Callable[[list[int]], str] | None = None  # turns prompts into text, to log prompts and answers

    def open(self, scope: Scope) -> Record:
        """Begins a record; the id is the client's, if printable and short."""
        sent = (value.decode() for name, value in scope["headers"] if name == b"x-request-id" and _ID.fullmatch(value))
        id = next(sent, None) or secrets.token_hex(16)
        scope["request_id"] = id
        record = scope["record"] = Record(id, self.spans is not None, self.text_of is not None)
        return record

    def close(self, scope: Scope, record: Record, route: str, is_generation: bool) -> tuple[str, str] | None:
        """How the request ended and why; None for one that did not ask an engine."""
        if self.metrics is not None and record.status is not None:
            self.metrics.responded(route, record.status)
        ended = record.outcome() if is_generation else None
        if ended is not None:
            outcome, reason = ended
            if self.metrics is not None:
                for answer in record.answers:
                    latencies = record.latencies(answer)
                    if latencies is not None:
                        self.metrics.finished(len(answer.prompt), answer.num_output, *latencies)
                        self.metrics.asked(answer.params.num_samples, answer.max_output)
                        if answer.adapter is not None:
                            self.metrics.adapted(answer.adapter.name, len(answer.prompt), answer.num_output)
                if record.status == 429 and record.answers and record.answers[0].adapter is not None:
                    self.metrics.adapter_refused(record.answers[0].adapter.name)
                self.metrics.ended(route, outcome, reason)
            if self.logs:
                self._write(scope, record, route, outcome, reason)
            if self.spans is not None:
                self.spans.take(self._span(scope, record, route, outcome, reason))
        record.answers = ()  # they refer to the response, and it to the connection
        return ended

    def flush(self) -> None:
        """Publishes the latest counts."""
        if self.spans is not None:
            self.spans.tell()
        if self.metrics is not None:
            self.metrics.flush()

    def _write(self, scope: Scope, record: Record, route: str, outcome: str, reason: str) -> None:
        fields: dict[str, object] = {
            "id": record.id,
            "route": route,
            "status": record.status,
            "outcome": outcome,
            "reason": reason,
            **dict(zip(("prompt_tokens", "cached_tokens", "output_tokens"), record.num_tokens(), strict=True)),
        }
        if record.ignored:
            fields["ignored"] = names_of(record)
        if record.answers and record.answers[0].adapter is not None:
            fields["adapter"] = record.answers[0].adapter.name
        key: ApiKey | None = scope.get("api_key")
        if key is not None:
            fields["key"] = key.name
        first = record.latencies(record.answers[0]) if record.answers else None
        if first is not None:
            fields["ttft_s"] = round(first.ttft_s, 6)
            if first.tpot_s is not None:
                fields["tpot_s"] = round(first.tpot_s, 6)
        fields["total_s"] = round(time.monotonic() - record.arrived, 6)
        if self.text_of is not None:
            fields["prompt"] = [self.text_of(answer.prompt) for answer in record.answers]
            fields["output"] = ["".join(answer.kept or ()) for answer in record.answers]
        _log.info("request", extra={"fields": fields})

    def _span(self, scope: Scope, record: Record, route: str, outcome: str, reason: str) -> RequestSpan:
        now = time.monotonic()
        num_prompt, num_cached, num_output = record.num_tokens()
        operation = "chat" if route.startswith(_CHATS) else "text_completion"
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "chairlift",
            "gen_ai.request.model": self.model,
            "gen_ai.response.model": self.model,
            "gen_ai.usage.input_tokens": num_prompt,
            "gen_ai.usage.cache_read.input_tokens": num_cached,
            "gen_ai.usage.output_tokens": num_output,
            "gen_ai.response.finish_reasons": [answer.finish for answer in record.answers if answer.finish],
            "http.request.method": scope["method"],
            "http.route": route,
            "chairlift.request_id": record.id,
            "chairlift.outcome": outcome,
            "chairlift.reason": reason,
        }
        if record.status is not None:
            attributes["http.response.status_code"] = record.status
        if record.answers:
            attributes |= _asked(record)
        error = reason if outcome == "failed" else None
        if error is not None:
            attributes["error.type"] = error
        parts: list[tuple[Phase, dict[str, Any]]] = [
            (phase, {"chairlift.request_id": record.id, "chairlift.prompt_index": index})
            for index, answer in enumerate(record.answers)
            for phase in phases(answer.marks or [], answer.first, now if answer.last is None else answer.last)
        ]
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _TRACE_HEADERS}
        return RequestSpan(f"{operation} {self.model}", record.arrived, now, headers, attributes, parts, error)


def _asked(record: Record) -> dict[str, Any]:
    """A request's parameters, under OpenTelemetry's names."""
    params, first = record.answers[0].params, record.answers[0].first
    asked = {
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.seed": params.seed,
        "gen_ai.request.choice.count": params.n if params.n > 1 else None,
        "gen_ai.response.time_to_first_chunk": None if first is None else first - record.arrived,
    }
    # A seed may be larger than an attribute can hold.
    return {name: value for name, value in asked.items() if value is not None and abs(value) < 2**63}
