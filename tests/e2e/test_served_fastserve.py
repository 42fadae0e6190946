"""A server started with an llm-serving file that asks for FastServe: short answers pass a long one that runs."""

import json
import threading
from pathlib import Path

import httpx
import pytest

from chairlift.core.events import Preempted, Token
from chairlift.lab.sim.replay import replay
from chairlift.telemetry.trace import Trace
from fakes.patience import HANG_S
from fakes.served import serve

YAML = """
model_config: {{model_name: llama_7b, decode_batch_size: [1], prefill_batch_size: [1], fastserve: {}}}
serving_config: {{agent_ports: [16002], server_ip: 127.0.0.1, server_port: 8835}}
pa_config: {{num_blocks: 513, block_size: 16, decode_seq_length: 4096}}
fa_config: {{time_slice: 0.15, rate: 2, starve_waiting_time: 60}}
"""
LONG, SHORT = 600, 3


def ask(url: str, num_tokens: int) -> dict[str, object]:
    parameters = {"do_sample": False, "max_new_tokens": num_tokens}
    response = httpx.post(
        f"{url}/models/llama2/generate", json={"inputs": "Hi", "parameters": parameters}, timeout=HANG_S
    )
    assert response.status_code == 200
    answer: dict[str, object] = json.loads(response.text)
    return answer


def finishing_order(url: str) -> list[int]:
    """A long answer begins; once it has used its first level up, a short one is asked for."""
    order: list[int] = []
    parameters = {"do_sample": False, "max_new_tokens": LONG, "return_full_text": False}
    body = {"inputs": "Once upon a time", "parameters": parameters}
    with httpx.stream("POST", f"{url}/models/llama2/generate_stream", json=body, timeout=HANG_S) as response:
        lines = response.iter_lines()
        for _ in range(100):
            next(lines)

        def short() -> None:
            assert ask(url, SHORT)["generated_tokens"] == SHORT
            order.append(SHORT)

        asking = threading.Thread(target=short)
        asking.start()
        assert sum(1 for _ in lines) == LONG - 100
        order.append(LONG)
    asking.join()
    return order


@pytest.mark.nightly
@pytest.mark.parametrize(("is_fast", "order"), [(True, [SHORT, LONG]), (False, [LONG, SHORT])])
def test_fastserve_schedules_by_levels(tiny_model: Path, tmp_path: Path, is_fast: bool, order: list[int]) -> None:
    config, path = tmp_path / "llama.yaml", tmp_path / "trace.jsonl"
    config.write_text(YAML.format(str(is_fast).lower()))
    with serve(
        tmp_path / "log", "--config", config, "--model", tiny_model, "--kernels", "torch", "--trace", path
    ) as on:
        assert finishing_order(on.url) == order
    trace = Trace(path)
    assert trace.header.rules.policy == ("mlfq:rate=2.0,starve=60.0" if is_fast else "fcfs")
    assert trace.header.limits.max_running == 1
    assert any(isinstance(line, Preempted) for line in trace) == is_fast
    assert sum(isinstance(line, Token) for line in trace) == LONG + SHORT
    assert replay(trace).difference is None
