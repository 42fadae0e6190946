"""Adapters over HTTP, with the official client: named by `model`, loaded, unloaded and reloaded while others stream."""

import json
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from chairlift.cli.main import main
from fakes.adapters import write_adapter
from fakes.patience import wait_until
from fakes.served import Served, chairlift

pytestmark = pytest.mark.slow

PROMPT = "Hello there"


@dataclass
class AdapterServer:
    served: Served
    folder: Path
    client: openai.OpenAI
    admin: httpx.Client

    def ask(self, model: str, max_tokens: int = 10) -> str:
        answer = self.client.completions.create(
            model=model, prompt=PROMPT, max_tokens=max_tokens, temperature=0, extra_body={"ignore_eos": True}
        )
        assert answer.model == model
        return answer.choices[0].text

    def load(self, name: str, path: object, **more: object) -> httpx.Response:
        return self.admin.post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(path), **more})

    def unload(self, name: str) -> httpx.Response:
        return self.admin.post("/v1/unload_lora_adapter", json={"lora_name": name})


@pytest.fixture(scope="module")
def world(adapters: Served, adapters_folder: Path) -> Iterator[AdapterServer]:
    found = re.search(r"admin routes on (\S+)", adapters.output)
    assert found is not None
    client = openai.OpenAI(base_url=f"{adapters.url}/v1", api_key="none", max_retries=0)
    with client, httpx.Client(base_url=found[1], timeout=60) as admin:
        yield AdapterServer(adapters, adapters_folder, client, admin)


def test_a_request_names_its_adapter_and_models_lists_it_with_its_parent(world: AdapterServer) -> None:
    texts = {name: world.ask(name) for name in ("tiny", "named", "found")}
    assert len(set(texts.values())) == 3
    assert {name: world.ask(name) for name in texts} == texts
    cards = {card.id: card.parent for card in world.client.models.list()}
    assert {name: cards[name] for name in texts} == {"tiny": None, "named": "tiny", "found": "tiny"}
    assert world.client.models.retrieve("found").id == "found"
    with pytest.raises(openai.NotFoundError, match="'absent' is not served here; served: tiny, named, found"):
        world.ask("absent")
    counted = re.compile(r'chairlift_adapter_requests_total{adapter="found"} [2-9]')
    wait_until(lambda: counted.search(httpx.get(f"{world.served.url}/metrics").text) is not None, lambda: "not counted")


def test_chats_and_other_dialects_name_adapters_too(world: AdapterServer) -> None:
    chat = world.client.chat.completions.create
    messages = [{"role": "user", "content": "Hi"}]
    answers = {
        name: chat(model=name, messages=messages, max_tokens=9, temperature=0).choices[0].message.content
        for name in ("tiny", "named", "found")
    }
    assert len(set(answers.values())) == 3
    url = f"{world.served.url}/v1/messages"
    body = {"model": "named", "messages": messages, "max_tokens": 9, "temperature": 0}
    assert httpx.post(url, json=body).json()["content"][0]["text"] == answers["named"]
    asked = {"inputs": PROMPT, "parameters": {"do_sample": False, "max_new_tokens": 10}}
    for name, adapter in {"named": "named", "found": "found", "llama2": "tiny"}.items():
        text = httpx.post(f"{world.served.url}/models/{name}/generate", json=asked).json()["generated_text"]
        assert text and world.ask(adapter).startswith(text)


def test_the_load_tester_asks_for_adapters_in_turn(world: AdapterServer, capsys: pytest.CaptureFixture[str]) -> None:
    def requests_by(adapter: str) -> int:
        counter = re.search(
            rf'chairlift_adapter_requests_total{{adapter="{adapter}"}} (\d+)',
            httpx.get(f"{world.served.url}/metrics").text,
        )
        return int(counter[1]) if counter else 0

    for seed, name in enumerate(("one", "other"), start=30):  # no other test's: counts are told some time after answers
        write_adapter(world.folder / name, seed=seed)
    load = ("--workload", "lengths:prompt=4,output=3,count=5", "--arrivals", "none", "--vocab-size", "60")
    assert main(["bench", "--url", world.served.url, *load, "--adapters", "one", "other"]) == 0
    assert capsys.readouterr().out.startswith("tiny with one, other: ")
    expected = {"one": 1 + 3, "other": 1 + 2}  # a trial each
    wait_until(lambda: {name: requests_by(name) for name in expected} == expected, lambda: f"not {expected}")
    assert main(["bench", "serve", "--base-url", world.served.url, *load, "--lora-modules", "found", "absent"]) == 2
    assert "'absent' is not served here" in capsys.readouterr().err


def test_adapters_are_loaded_unloaded_and_loaded_again(world: AdapterServer) -> None:
    write_adapter(world.folder / "nested" / "late", seed=5)
    assert world.load("late", "nested/late").status_code == 200
    text = world.ask("late")
    assert world.load("late", "nested/late").status_code == 400
    write_adapter(world.folder / "nested" / "later", seed=6)
    assert world.load("late", world.folder / "nested" / "later", load_inplace=True).status_code == 200
    others = {world.ask("late") for _ in range(4)}  # from both replicas, and not from old prefixes
    assert len(others) == 1 and text not in others
    assert "late" in {each["name"] for each in world.admin.get("/admin/adapters").json()}
    assert world.unload("late").status_code == 200
    with pytest.raises(openai.NotFoundError):
        world.ask("late")
    assert world.unload("late").status_code == 404


def test_a_name_of_the_folder_stays_unloaded_until_it_is_loaded_again(world: AdapterServer) -> None:
    write_adapter(world.folder / "came", seed=8)
    text = world.ask("came")
    assert world.unload("came").status_code == 200
    with pytest.raises(openai.NotFoundError):
        world.ask("came")
    assert world.load("came", "came").status_code == 200
    assert world.ask("came") == text


def test_unloading_waits_for_the_last_request_and_refuses_new_ones_at_once(world: AdapterServer) -> None:
    write_adapter(world.folder / "busy", seed=7)
    expected = world.ask("busy", 300)
    stream = world.client.completions.create(
        model="busy", prompt=PROMPT, max_tokens=300, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    pieces = [next(iter(stream)).choices[0].text]
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(world.unload("busy").status_code))
    thread.start()
    while "busy" in {card.id for card in world.client.models.list()}:
        pass
    with pytest.raises(openai.NotFoundError):
        world.ask("busy")
    pieces += [chunk.choices[0].text for chunk in stream]
    thread.join()
    assert done == [200]
    assert "".join(pieces) == expected


def test_more_adapters_than_slots_serve_each_request_with_its_own(world: AdapterServer) -> None:
    names = [f"many-{i}" for i in range(5)]
    for i, name in enumerate(names):
        write_adapter(world.folder / name, seed=20 + i, rank=1 + i)
    alone = {name: world.ask(name, 30) for name in (*names, "tiny")}
    seen: list[tuple[str, str]] = []
    asked = [name for name in alone for _ in range(4)]
    threads = [threading.Thread(target=lambda name=name: seen.append((name, world.ask(name, 30)))) for name in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(asked)
    assert all(alone[name] == text for name, text in seen)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../elsewhere", "below --lora-dir"),
        ("/etc", "below --lora-dir"),
        ("", "below --lora-dir"),
        ("missing", "no folder"),
        ("linked", "symbolic link"),
        ("linking", "symbolic link"),
        ("dora", "use_dora"),
        ("large", "--max-lora-rank"),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_one_line(world: AdapterServer, path: str, says: str) -> None:
    write_adapter(world.folder / "dora", use_dora=True)
    write_adapter(world.folder / "large", rank=65)
    linked, linking = world.folder / "linked", world.folder / "linking"
    if not linked.exists():
        linked.symlink_to(world.folder / "found")
        shutil.copytree(world.folder / "found", linking)
        (linking / "adapter_model.safetensors").unlink()
        (linking / "adapter_model.safetensors").symlink_to(world.folder / "found" / "adapter_model.safetensors")
    refused = world.load("new", path)
    assert refused.status_code == 400 and says in refused.json()["error"]["message"]


def test_bodies_and_names_that_are_wrong_are_refused(world: AdapterServer) -> None:
    for body in ({}, {"lora_name": "a"}, {"lora_name": 1, "lora_path": "found"}, {"lora_name": "a", "x": 1}, [1]):
        assert world.admin.post("/v1/load_lora_adapter", json=body).status_code == 400
    for name in ("", "tiny", "a\nb", "x" * 201):
        assert world.load(name, "found").status_code == 400
    write_adapter(world.folder / "dora", use_dora=True)
    with pytest.raises(openai.BadRequestError, match="use_dora"):
        world.ask("dora")


@pytest.mark.nightly
def test_streams_with_an_adapter_outlive_their_engine(world: AdapterServer) -> None:
    expected = world.ask("found", 400)
    stream = world.client.completions.create(
        model="found", prompt=PROMPT, max_tokens=400, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    pieces = [next(iter(stream)).choices[0].text]
    world.served.kill("engine")
    pieces += [chunk.choices[0].text for chunk in stream]
    assert "".join(pieces) == expected


def test_an_adapters_limit_is_the_whole_servers(world: AdapterServer) -> None:
    assert world.load("limited", "found").status_code == 200
    body = {"model": "limited", "prompt": PROMPT, "max_tokens": 1}
    answers = [httpx.post(f"{world.served.url}/v1/completions", json=body, timeout=60) for _ in range(6)]  # either's
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429, 429, 429]
    assert "the limit of adapter limited is reached, 2 requests a minute" in answers[2].text
    assert world.unload("limited").status_code == 200


@pytest.mark.nightly
def test_verify_asks_for_the_model_and_adapters_alone_and_all_at_once(world: AdapterServer, tmp_path: Path) -> None:
    out, few = tmp_path / "out.json", ("--num-prompts", "6", "--tokens", "6")
    asked = ("--url", world.served.url, "--adapters", "named", "found")
    run = chairlift("verify", "--against", "batch", *asked, *few, "--json", out)
    report = json.loads(out.read_text())
    # Without --exact it depends on the machine whether a batch changes a last bit.
    assert run.returncode == (0 if report["total"]["rows_differing"] else 2), run.stdout + run.stderr
    assert (report["requests"], report["adapters"]) == (6, {"named": 2, "found": 2})
    assert report["total"]["texts_differing"] == 0
