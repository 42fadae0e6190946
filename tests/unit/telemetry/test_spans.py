import socket
import sys
import time

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.telemetry import spans
from chairlift.telemetry.phases import Mark, Phase, phases
from chairlift.telemetry.spans import RequestSpan, Spans, check_endpoint
from fakes.otlp import receiver
from fakes.patience import HANG_S

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SERVICE = {"service.name": "chairlift", "service.version": "1.2.3"}


@pytest.fixture(autouse=True)
def long_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is sent, however busy the machine."""
    monkeypatch.setattr(spans, "_GOODBYE_MS", 1000 * HANG_S)


class Counted(dict[str, int]):
    def __call__(self, outcome: str, count: int) -> None:
        self[outcome] = self.get(outcome, 0) + count


def span(now: float, flags: str = "01") -> RequestSpan:
    return RequestSpan(
        name="chat small",
        start=now - 3,
        end=now,
        headers={"traceparent": f"00-{TRACE}-{CALLER}-{flags}"},
        attributes={"gen_ai.request.model": "small", "gen_ai.response.finish_reasons": ["stop"]},
        phases=[(Phase("queue", now - 3, now - 2), {"n": 1}), (Phase("decode", now - 2, now), {})],
        error="it broke",
    )


def test_a_request_and_its_phases_arrive_under_the_callers_span() -> None:
    counted, began_ns = Counted(), time.time_ns()
    with receiver() as got:
        sending = Spans(got.url, SERVICE, counted)
        sending.take(span(time.monotonic()))
        sending.close()
        sending.tell()
    assert counted == {"sent": 3}
    (request,) = got.named("chat small")
    (queue,) = got.named("queue")
    assert (request.trace, request.parent) == (TRACE, CALLER)
    assert (queue.trace, queue.parent) == (TRACE, request.id)
    assert request.attributes == {"gen_ai.request.model": "small", "gen_ai.response.finish_reasons": ["stop"]}
    assert request.is_error
    assert request.end_ns - request.start_ns == pytest.approx(3e9, abs=1e6)
    assert queue.end_ns - queue.start_ns == pytest.approx(1e9, abs=1e6)
    assert began_ns <= request.end_ns <= time.time_ns()
    assert got.resources[0]["service.name"] == "chairlift"


def test_what_the_caller_does_not_trace_is_not_sent() -> None:
    counted = Counted()
    with receiver() as got:
        sending = Spans(got.url, SERVICE, counted)
        sending.take(span(time.monotonic(), flags="00"))
        sending.close()
        sending.tell()
    assert not got.spans
    assert not counted


def test_spans_that_find_no_room_are_dropped_and_counted() -> None:
    counted = Counted()
    with receiver() as got:
        sending = Spans(got.url, SERVICE, counted, max_pending=7)
        for _ in range(5):
            sending.take(span(time.monotonic()))
        sending.close()
        sending.tell()
    assert counted == {"dropped": 9, "sent": 6}
    assert len(got.spans) == 6


def test_spans_that_the_receiver_refuses_are_counted_as_dropped() -> None:
    counted = Counted()
    with receiver(status=400) as got:
        sending = Spans(got.url, SERVICE, counted)
        sending.take(span(time.monotonic()))
        sending.close()
        sending.tell()
    assert counted == {"dropped": 3}


def test_an_endpoint_that_does_not_answer_is_waited_for_no_longer_than_the_goodbye(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spans, "_GOODBYE_MS", 10)
    counted = Counted()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sending = Spans(f"http://127.0.0.1:{silent.getsockname()[1]}", SERVICE, counted)
        sending.take(span(time.monotonic()))
        sending.close()
        sending.tell()
    assert not counted  # it is still being tried


@pytest.mark.parametrize("endpoint", ["localhost:4318", "grpc://localhost:4317", "http://", "nonsense"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidConfig, match="must be an http or https URL"):
        check_endpoint(endpoint)


def test_a_refused_endpoint_is_named_without_its_password() -> None:
    for endpoint in ("ftp://alice:secret@host", "http://alice:secret@[bad", "http://alice:secret@"):
        with pytest.raises(InvalidConfig, match=r"//\*\*\*@") as refusal:
            check_endpoint(endpoint)
        assert "secret" not in str(refusal.value)


def test_without_the_packages_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    check_endpoint("http://localhost:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'chairlift\[otel\]'"):
        check_endpoint("http://localhost:4318")


@pytest.mark.parametrize(
    ("marks", "first", "expected"),
    [
        ([], None, []),
        ([("queued", 1.0)], None, [Phase("queue", 1, 9)]),
        ([("queued", 1.0), ("prompt", 2.0)], None, [Phase("queue", 1, 2), Phase("prefill", 2, 9)]),
        (
            [("queued", 1.0), ("prompt", 2.0), ("preempted", 5.0), ("prompt", 6.0), ("preempted", 8.0)],
            3.0,
            [
                Phase("queue", 1, 2),
                Phase("prefill", 2, 3),
                Phase("decode", 3, 9),
                Phase("preemption", 5, 6),
                Phase("preemption", 8, 9),
            ],
        ),
    ],
)
def test_phases_follow_from_what_became_of_a_request(
    marks: list[Mark], first: float | None, expected: list[Phase]
) -> None:
    assert phases(marks, first, 9.0) == expected
