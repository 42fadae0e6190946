"""What it takes to add a sampling parameter or an attribute: one line beside the others, and nothing on its way from an
HTTP body to the engine's request."""

import json
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
ADDED = """
import argparse, asyncio, json, msgspec
from fakes.edited import add_line
add_line("chairlift.core.params", "    n: int", '    min_q: float = param(0.25, "A filter", 0.0, 0.5)')
add_line("chairlift.core.attributes", "    user: str", '    tier: str = param("plain", "A class", max_size=8)')
from chairlift.cli.inputs.sampling import add_sampling_flags, given
from chairlift.live.wire.messages import Submit
from fakes.http_world import HttpWorld
from fakes.switchboards import ledger_switchboard

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
world, switchboard = HttpWorld(), ledger_switchboard()
parser = argparse.ArgumentParser()
add_sampling_flags(parser)

async def ask(**body):
    answers = [await world.post("/v1/completions", {"prompt": "Hi", **body})]
    answers.append(await world.post("/v1/chat/completions", CHAT | body))
    return answers

def requests():
    for key, asked in enumerate(world.client.requests):
        sent = msgspec.msgpack.encode(Submit(key, asked.prompt, asked.params, 9, asked.attributes))
        switchboard.submit(b"", msgspec.msgpack.decode(sent, type=Submit))
    return [progress.request for progress in switchboard.engine.scheduler.live.values()]

async def main():
    taken = await ask(min_q=0.5, tier="gold") + await ask()
    schemas = (await world.get("/openapi.json")).json()["components"]["schemas"]
    print(json.dumps({
        "taken": [(answer.status_code, answer.headers.get("x-chairlift-ignored")) for answer in taken],
        "requests": [(request.params.min_q, request.attributes.tier) for request in requests()],
        "given": [request.attributes.given for request in requests()][0],
        "refused": [answer.json()["error"]["message"] for answer in await ask(min_q=0.6)],
        "mistyped": [answer.json()["error"]["message"] for answer in await ask(min_q="much")],
        "too long": [answer.json()["error"]["message"] for answer in await ask(tier="x" * 9)],
        "described": [schemas[name]["properties"]["min_q"] for name in ("CompletionRequest", "ChatRequest")],
        "flag": given(parser.parse_args(["--min-q", "0.5"])),
    }))

asyncio.run(main())
"""


def test_a_new_parameter_and_a_new_attribute_are_one_line_each() -> None:
    paths = f"{TESTS}:{TESTS.parent / 'src'}"
    ran = subprocess.run(
        [sys.executable, "-c", ADDED], env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert not ran.returncode, ran.stderr
    found = json.loads(ran.stdout)
    assert found["taken"] == [[200, None]] * 4
    assert found["requests"] == [[0.5, "gold"]] * 2 + [[0.25, "plain"]] * 2
    assert found["given"] == {"tier": "gold"}
    assert found["refused"] == ["min_q: must be between 0.0 and 0.5, got 0.6"] * 2
    assert found["mistyped"] == ["min_q: must be a number, got text"] * 2
    assert found["too long"] == ["tier: must have at most 8 characters, got 9"] * 2
    for described in found["described"]:
        assert (described["description"], described["minimum"], described["maximum"]) == ("A filter", 0.0, 0.5)
    assert found["flag"] == {"min_q": 0.5}
