"""Requests as OpenTelemetry spans, sent by OTLP over HTTP.

Always: made when a request is over and sent by a thread of its own, so no request waits for it. At most `MAX_PENDING`
spans wait to be sent; beyond, a request's spans are dropped and counted, like those that the receiver refused. Needs
the packages of `chairlift[otel]`.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from chairlift.config.extras import check_extra
from chairlift.config.options.values import redacted
from chairlift.core.errors import InvalidConfig
from chairlift.telemetry.phases import Phase

MAX_PENDING = 8192
_BATCH = 256
_DELAY_MS = 500.0
_TIMEOUT_S = 5.0
_GOODBYE_MS = 1000


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """A request that is over; times are of the monotonic clock."""

    name: str
    start: float
    end: float
    headers: Mapping[str, str]  # `traceparent` and `tracestate`, if they were sent
    attributes: Mapping[str, Any]
    phases: Sequence[tuple[Phase, Mapping[str, Any]]] = field(default=())
    error: str | None = None


def check_endpoint(endpoint: str) -> None:
    """Raises `InvalidConfig` when spans cannot be sent there."""
    try:
        parts = urlsplit(endpoint)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidConfig(
            f"otlp_endpoint must be an http or https URL such as http://localhost:4318, got {redacted(endpoint)!r}"
        )
    check_extra("otlp_endpoint", "otel")


class Spans:
    def __init__(
        self,
        endpoint: str,
        service: Mapping[str, str],
        count: Callable[[str, int], None],
        max_pending: int = MAX_PENDING,
    ) -> None:
        """`count` is told how many spans were "sent" or "dropped", in the thread that calls `take` or `tell`."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        outer = self

        class Exporter(OTLPSpanExporter):
            def export(self, spans: Sequence[Any]) -> SpanExportResult:
                result = SpanExportResult.FAILURE
                try:
                    result = super().export(spans)
                finally:
                    outer._done("sent" if result is SpanExportResult.SUCCESS else "dropped", len(spans))
                return result

        self._count = count
        self._max_pending = max_pending
        self._lock = threading.Lock()
        self._num_pending = 0
        self._told = {"sent": 0, "dropped": 0}  # since `tell` was last called
        exporter = Exporter(endpoint=_with_path(endpoint), timeout=_TIMEOUT_S)
        self._processor = BatchSpanProcessor(
            exporter,
            max_queue_size=max(_BATCH, 2 * max_pending),  # never full, so that nothing is dropped uncounted
            schedule_delay_millis=_DELAY_MS,
            max_export_batch_size=_BATCH,
        )
        provider = TracerProvider(resource=Resource.create(dict(service)), shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("chairlift", service.get("service.version", ""))
        self._extract = TraceContextTextMapPropagator().extract

    def take(self, request: RequestSpan) -> None:
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        self.tell()
        num_spans = 1 + len(request.phases)
        with self._lock:
            is_full = self._num_pending + num_spans > self._max_pending
            self._num_pending += 0 if is_full else num_spans
        if is_full:
            self._count("dropped", num_spans)
            return
        to_wall = time.time() - time.monotonic()

        def at(moment: float) -> int:
            return int((moment + to_wall) * 1e9)

        parent = self._extract(dict(request.headers))
        span = self._tracer.start_span(
            request.name, parent, SpanKind.SERVER, attributes=dict(request.attributes), start_time=at(request.start)
        )
        if not span.is_recording():  # the caller's trace is not sampled
            with self._lock:
                self._num_pending -= num_spans
            return
        if request.error is not None:
            span.set_status(StatusCode.ERROR, request.error)
        inside = set_span_in_context(span)
        for phase, attributes in request.phases:
            child = self._tracer.start_span(
                phase.name, inside, SpanKind.INTERNAL, attributes=dict(attributes), start_time=at(phase.start)
            )
            child.end(at(phase.end))
        span.end(at(request.end))

    def tell(self) -> None:
        """Counts what the thread has sent or dropped since the last call."""
        with self._lock:
            told, self._told = self._told, {"sent": 0, "dropped": 0}
        for outcome, count in told.items():
            if count:
                self._count(outcome, count)

    def close(self) -> None:
        """Sends what is left, for a second at most."""
        ending = threading.Thread(target=self._processor.shutdown, daemon=True)
        ending.start()
        ending.join(_GOODBYE_MS / 1000)

    def _done(self, outcome: str, count: int) -> None:
        with self._lock:
            self._num_pending -= count
            self._told[outcome] += count


def _with_path(endpoint: str) -> str:
    """Adds the path of traces to an address without one."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + "/v1/traces"
