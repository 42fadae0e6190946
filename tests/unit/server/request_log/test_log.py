"""What is written down of a request: counts, a line in the log, spans, and the id that is in all of them."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chairlift.server.request_log.log import RequestLog
from chairlift.telemetry.metrics.front_end import FrontEndMetrics
from chairlift.telemetry.spans import Spans
from fakes.http_world import HttpWorld
from fakes.otlp import receiver
from fakes.patience import HANG_S, turns, until, wait_until
from fakes.scrapes import Scrape, own_values

ASK = {"prompt": "Hello", "max_tokens": 4}
CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
COMPLETIONS = "/v1/completions"


@pytest.fixture
def metrics(tmp_path: Path) -> Iterator[FrontEndMetrics]:
    with own_values():
        yield FrontEndMetrics(tmp_path, 0)


def world_of(metrics: FrontEndMetrics, **settings: Any) -> HttpWorld:
    return HttpWorld(request_log=RequestLog(model="small", metrics=metrics), **settings)


async def scrape_of(world: HttpWorld) -> Scrape:
    response = await world.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(response.text)


async def test_a_finished_request_is_counted_with_its_figures(metrics: FrontEndMetrics) -> None:
    world = world_of(metrics)
    await world.post(COMPLETIONS, ASK)
    await world.post(COMPLETIONS, {**ASK, "max_tokens": 100, "stream": True})
    scrape = await scrape_of(world)
    assert scrape.value("chairlift_requests_total", route=COMPLETIONS, outcome="finished", reason="length") == 1
    assert scrape.value("chairlift_requests_total", route=COMPLETIONS, outcome="finished", reason="stop") == 1
    assert scrape.value("chairlift_http_responses_total", route=COMPLETIONS, code="200") == 2
    for name in ("time_to_first_token", "request_duration", "time_per_output_token"):
        assert scrape.value(f"chairlift_{name}_seconds_count") == 2
    assert scrape.value("chairlift_request_generated_tokens_sum") == 4 + len(world.answer)
    ttft, total = (scrape.value(f"chairlift_{n}_seconds_sum") for n in ("time_to_first_token", "request_duration"))
    assert 0 < ttft < total


async def test_times_are_those_that_passed(metrics: FrontEndMetrics) -> None:
    world = world_of(metrics)
    world.client.delay_s = 0.05
    began = time.monotonic()
    await world.post(COMPLETIONS, ASK)
    took_s = time.monotonic() - began
    scrape = await scrape_of(world)
    first_s = scrape.value("chairlift_time_to_first_token_seconds_sum")
    each_s = scrape.value("chairlift_time_per_output_token_seconds_sum")
    whole_s = scrape.value("chairlift_request_duration_seconds_sum")
    assert first_s >= 0.05
    assert each_s >= 0.05
    assert 0.2 <= whole_s <= took_s
    assert first_s + 3 * each_s == pytest.approx(whole_s)


async def test_samples_and_prompts_of_one_request_are_one_request(metrics: FrontEndMetrics) -> None:
    world = world_of(metrics)
    await world.post(COMPLETIONS, {**ASK, "prompt": ["Hello", "there"], "n": 2})
    scrape = await scrape_of(world)
    assert scrape.value("chairlift_requests_total") == 1
    assert scrape.value("chairlift_request_prompt_tokens_count") == 2
    assert scrape.value("chairlift_request_generated_tokens_sum") == 16


@pytest.mark.parametrize(
    ("path", "body", "outcome", "reason"),
    [
        (COMPLETIONS, {"prompt": 1.5}, "refused", "400"),
        (COMPLETIONS, {**ASK, "model": "another"}, "refused", "404"),
        (COMPLETIONS, {**ASK, "prompt": "x" * 30_000}, "refused", "413"),
        ("/models/{name}/generate", {"inputs": ""}, "refused", "invalid"),
        ("/models/{name}/generate", {"inputs": 3.5, "parameters": 1}, "refused", "422"),
    ],
)
async def test_what_is_refused_is_counted_by_why(
    metrics: FrontEndMetrics, path: str, body: Any, outcome: str, reason: str
) -> None:
    world = world_of(metrics)
    await world.post(path.replace("{name}", "x"), body)
    scrape = await scrape_of(world)
    assert scrape.value("chairlift_requests_total", route=path, outcome=outcome, reason=reason) == 1
    assert not scrape.has("chairlift_time_to_first_token_seconds_sum") or (
        scrape.value("chairlift_time_to_first_token_seconds_count") == 0
    )


async def test_a_request_that_the_engine_fails_is_counted_as_failed(metrics: FrontEndMetrics) -> None:
    world = world_of(metrics)
    world.client.fails_at = 0
    await world.post(COMPLETIONS, ASK)
    world.client.fails_at = 2
    await world.post(COMPLETIONS, {**ASK, "stream": True})
    scrape = await scrape_of(world)
    assert scrape.value("chairlift_requests_total", outcome="failed", reason="500") == 1
    assert scrape.value("chairlift_requests_total", outcome="failed", reason="request_failed") == 1


async def test_a_request_that_a_stop_cuts_off_is_counted_as_failed_and_not_as_refused(metrics: FrontEndMetrics) -> None:
    world = world_of(metrics, says="Hello world, " * 60)
    world.client.stalls_at = 3
    cut = asyncio.create_task(world.post(COMPLETIONS, {**ASK, "max_tokens": 100}))
    await until(lambda: world.client.requests)
    world.context.load.end_all()
    assert (await cut).status_code == 503
    scrape = await scrape_of(world)
    assert scrape.value("chairlift_requests_total", outcome="failed", reason="503") == 1


def test_a_client_that_leaves_is_counted_as_such(tmp_path: Path) -> None:
    with own_values():
        world = HttpWorld(request_log=RequestLog(model="small", metrics=FrontEndMetrics(tmp_path, 0)))
        world.client.stalls_at = 3
        with world.on_a_port() as url:
            body = {**ASK, "stream": True, "max_tokens": 100}
            with httpx.stream("POST", url + COMPLETIONS, json=body, timeout=HANG_S) as response:
                next(response.iter_lines())
            wait_until(lambda: "aborted" in httpx.get(f"{url}/metrics", timeout=HANG_S).text)
            scrape = Scrape(httpx.get(f"{url}/metrics", timeout=HANG_S).text)
    assert scrape.value("chairlift_requests_total", outcome="aborted", reason="client") == 1


async def test_paths_that_clients_make_up_are_one_route(metrics: FrontEndMetrics) -> None:
    world = world_of(metrics)
    for path in ("/a", "/b", "/v1/models/../x"):
        await world.get(path)
    await world.get(COMPLETIONS)
    scrape = await scrape_of(world)
    assert scrape.value("chairlift_http_responses_total", route="other", code="404") >= 2
    assert scrape.value("chairlift_http_responses_total", route=COMPLETIONS, code="405") == 1


async def test_vllms_names_come_beside_ours_when_asked_for(metrics: FrontEndMetrics) -> None:
    world = world_of(metrics)
    await world.post(COMPLETIONS, ASK)
    assert not any(name.startswith("vllm") for name in (await scrape_of(world)).families)
    asked = world_of(metrics, vllm_metric_names=True)
    scrape = await scrape_of(asked)
    assert scrape.value("vllm:request_success_total", finished_reason="length", model_name="small") == 1
    assert scrape.value("vllm:e2e_request_latency_seconds_count", model_name="small") == 1


async def test_simultaneous_scrapes_share_one_result(metrics: FrontEndMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    world, made, may_end = HttpWorld(request_log=RequestLog(metrics=metrics)), list[int](), threading.Event()

    def gather(*_: object) -> bytes:
        made.append(1)
        may_end.wait(HANG_S)
        return b"%d" % len(made)

    monkeypatch.setattr("chairlift.server.scrape.exposition", gather)
    asked = [asyncio.ensure_future(world.get("/metrics")) for _ in range(5)]
    await turns()  # by now all are at their route
    may_end.set()
    assert [response.text for response in await asyncio.gather(*asked)] == ["1"] * 5
    assert (await world.get("/metrics")).text == "2"


async def test_without_a_folder_there_are_no_metrics() -> None:
    assert (await HttpWorld().get("/metrics")).status_code == 404


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/chat/completions", "/models/x/generate", "/nothing", "/metrics"])
@pytest.mark.parametrize("stream", [False, True])
async def test_every_response_echoes_the_id(path: str, stream: bool) -> None:
    world = HttpWorld()
    body = {**(CHAT if "chat" in path else ASK), "inputs": "Hello", "stream": stream}
    async with world.http() as http:
        sent = await http.post(path, json=body, headers={"X-Request-Id": "my-id:7"})
        made = await http.post(path, json=body)
        broken = await http.post(path, content=b"{", headers={"X-Request-Id": "my-id:8"})
    assert sent.headers["x-request-id"] == "my-id:7"
    assert len(made.headers["x-request-id"]) == 32
    assert broken.headers["x-request-id"] == "my-id:8"
    assert broken.status_code >= 400


@pytest.mark.parametrize("id", ["two words", "x" * 129, "", "ümlaut", "tab\tbed"])
async def test_an_id_that_is_not_sane_is_replaced(id: str) -> None:
    async with HttpWorld().http() as http:
        response = await http.get("/version", headers={b"X-Request-Id": id.encode()})
    assert response.headers["x-request-id"] != id
    assert len(response.headers["x-request-id"]) == 32


async def test_the_engine_is_told_the_id() -> None:
    world = HttpWorld()
    async with world.http() as http:
        await http.post(COMPLETIONS, json=ASK, headers={"X-Request-Id": "my-id"})
        await http.post("/models/x/generate", json={"inputs": "Hello"}, headers={"X-Request-Id": "other"})
    assert [request.name for request in world.client.requests] == ["my-id", "other"]


def fields_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.name == "chairlift.requests"]


async def test_a_line_is_logged_for_each_request_and_none_of_its_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = HttpWorld("secret answer", request_log=RequestLog(model="small", logs=True))
    world.client.num_cached = 1
    async with world.http() as http:
        await http.post(COMPLETIONS, json={**ASK, "prompt": "secret prompt"}, headers={"X-Request-Id": "my-id"})
    await world.post(COMPLETIONS, {"prompt": 1.5})
    await world.get("/health")
    done, refused = fields_of(caplog)
    assert done.pop("ttft_s") <= done.pop("total_s")
    done.pop("tpot_s", None)
    num_prompt = len(world.client.requests[0].prompt)
    assert done == {
        "id": "my-id",
        "route": COMPLETIONS,
        "status": 200,
        "outcome": "finished",
        "reason": "length",
        "prompt_tokens": num_prompt,
        "cached_tokens": 1,
        "output_tokens": 4,
    }
    assert (refused["status"], refused["outcome"], refused["prompt_tokens"]) == (400, "refused", 0)
    assert "secret" not in json.dumps(fields_of(caplog))


async def test_a_line_names_the_key_but_does_not_show_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    key = "sk-alice-0123456789"
    async with HttpWorld(request_log=RequestLog(model="small", logs=True), api_key=key).http() as http:
        await http.post(COMPLETIONS, json=ASK, headers={"Authorization": f"Bearer {key}"})
        await http.post(COMPLETIONS, json=ASK, headers={"Authorization": f"Bearer {key}0"})
    done, refused = fields_of(caplog)
    assert (done["key"], done["status"]) == ("key-1", 200)
    assert ("key" in refused, refused["status"]) == (False, 401)
    assert key not in json.dumps([done, refused])


@pytest.mark.parametrize("stream", [False, True])
async def test_prompts_and_answers_are_logged_only_on_request(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    caplog.set_level(logging.INFO)
    tokenizer = HttpWorld().tokenizer
    request_log = RequestLog(model="small", logs=True, text_of=lambda ids: tokenizer.decode(ids))
    world = HttpWorld("Hello there.", request_log=request_log)
    await world.post(COMPLETIONS, {"prompt": "Hello", "max_tokens": 50, "stream": stream})
    (line,) = fields_of(caplog)
    assert line["prompt"] == ["Hello"]
    assert line["output"] == ["Hello there."]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_request_is_traced_with_what_became_of_it_in_the_engine(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chairlift.telemetry.spans._GOODBYE_MS", 1000 * HANG_S)
    with receiver() as got:
        spans = Spans(got.url, {"service.name": "chairlift"}, lambda outcome, count: None)
        world = HttpWorld(request_log=RequestLog(model="small", spans=spans))
        now = time.monotonic()
        world.client.marks = [("queued", now), ("prompt", now), ("preempted", now), ("prompt", now)]
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "X-Request-Id": "my-id"}
        async with world.http() as http:
            await http.post(path, json={**CHAT, "max_tokens": 4, "temperature": 0}, headers=headers)
        spans.close()
    (request,) = got.named("chat small")
    assert request.trace == trace
    assert request.attributes["chairlift.request_id"] == "my-id"
    assert request.attributes["gen_ai.operation.name"] == "chat"
    assert request.attributes["gen_ai.usage.output_tokens"] == 4
    assert request.attributes["gen_ai.response.finish_reasons"] == ["length"]
    assert request.attributes["gen_ai.request.temperature"] == 0.0
    assert request.attributes["http.response.status_code"] == 200
    children = {span.name for span in got.spans if span.parent == request.id}
    assert children == {"queue", "prefill", "decode", "preemption"}
