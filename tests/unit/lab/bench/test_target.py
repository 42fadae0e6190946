import json

import pytest

from chairlift.core.attributes import Attributes
from chairlift.core.errors import InvalidConfig
from chairlift.lab.bench.request_writer import RequestWriter, text_prompts, token_prompts
from chairlift.lab.bench.target import Address, Api, TargetServer
from chairlift.lab.workload.item import Item


def target(api: Api = Api.COMPLETIONS, **values: object) -> TargetServer:
    return TargetServer(Address("h", 80), api, "m", **values)  # type: ignore[arg-type]


def body(request: bytes) -> dict[str, object]:
    head, _, content = request.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(content)}".encode() in head
    decoded = json.loads(content)
    assert isinstance(decoded, dict)
    return decoded


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("localhost:8835", "http://localhost:8835"),
        ("https://host/v1/", "https://host:443"),
        ("http://host/proxy/v1", "http://host:80/proxy"),
        ("http://[::1]:9", "http://[::1]:9"),
    ],
)
def test_addresses_are_read(url: str, shown: str) -> None:
    assert str(Address.parse(url)) == shown


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://h:99999", "http://h:x", "http://h?a=b"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="--url"):
        Address.parse(url)


def test_a_completion_asks_for_exact_lengths_streamed() -> None:
    request = target().request((1, 2), Item(prompt_tokens=2, output_tokens=7))
    assert request.startswith(b"POST /v1/completions HTTP/1.1\r\nHost: h:80\r\n")
    asked = body(request)
    assert asked["prompt"] == [1, 2]
    assert (asked["max_tokens"], asked["ignore_eos"], asked["stream"]) == (7, True, True)
    assert asked["stream_options"] == {"include_usage": True}
    assert not {"priority", "user", "deadline_s"} & set(asked)


def test_attributes_are_passed_on() -> None:
    item = Item(prompt_tokens=1, output_tokens=1, attributes=Attributes(priority=3, user="u", deadline_s=2.0))
    asked = body(target(ignores_eos=False, api_key="k").request("x", item))
    assert (asked["priority"], asked["user"], asked["deadline_s"]) == (3, "u", 2.0)
    assert "ignore_eos" not in asked
    assert b"\r\nAuthorization: Bearer k\r\n" in target(api_key="k").request("x", item)


def test_a_text_becomes_a_chat_and_a_chat_stays_one() -> None:
    item = Item(prompt_tokens=1, output_tokens=1)
    assert body(target(Api.CHAT).request("hi", item))["messages"] == [{"role": "user", "content": "hi"}]
    chat = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    assert body(target(Api.CHAT).request(chat, item))["messages"] == list(chat)


def test_llm_serving_has_its_own_route_and_names() -> None:
    request = target(Api.LLM_SERVING).request("hi", Item(prompt_tokens=1, output_tokens=5))
    assert request.startswith(b"POST /models/m/generate_stream ")
    parameters = {"max_new_tokens": 5, "do_sample": False, "return_full_text": True}
    assert body(request) == {"inputs": "hi", "parameters": parameters}


ITEMS = [Item(prompt_tokens=5 + i, output_tokens=3, arrival_s=0.5 * i) for i in range(4)]


def test_the_same_seed_asks_the_same() -> None:
    def asked(seed: int) -> list[bytes]:
        writer = RequestWriter(target(), token_prompts(seed), token_prompts(-1))
        return [prepared.request for prepared in writer.requests(ITEMS)]

    assert asked(0) == asked(0) != asked(1)
    planned = RequestWriter(target(), token_prompts(0), token_prompts(-1)).requests(ITEMS)
    assert [(p.index, p.arrival_s, p.prompt_tokens, p.output_tokens) for p in planned] == [
        (i, 0.5 * i, 5 + i, 3) for i in range(4)
    ]


def test_warm_up_requests_have_the_same_lengths_and_other_prompts() -> None:
    writer = RequestWriter(target(), token_prompts(0), token_prompts(-1))
    warm_up = writer.warm_up(ITEMS, 6)
    assert [p.prompt_tokens for p in warm_up] == [5, 6, 7, 8, 5, 6]
    assert {p.arrival_s for p in warm_up} == {0.0}
    assert not {p.request for p in warm_up} & {p.request for p in writer.requests(ITEMS)}
    assert [body(trial)["max_tokens"] for trial in writer.trials(ITEMS).values()] == [2]


def test_adapters_take_turns_and_each_has_a_trial_beside_the_model() -> None:
    writer = RequestWriter(target(), token_prompts(0), token_prompts(-1), ("a", "b", "c"))
    assert [body(each.request)["model"] for each in writer.requests(ITEMS)] == list("abca")
    assert {name: body(trial)["model"] for name, trial in writer.trials(ITEMS).items()} == {n: n for n in "mabc"}


def test_words_are_counted_by_a_tokenizer_or_count_as_tokens() -> None:
    prompt = text_prompts(0, None)(ITEMS[0], 0)
    assert isinstance(prompt, str)
    assert len(prompt.split()) == 5
    shared = Item(prompt_tokens=600, output_tokens=1, hash_ids=(1, 2))
    other = Item(prompt_tokens=700, output_tokens=1, hash_ids=(1, 3))
    make = text_prompts(0, None)
    first, second = str(make(shared, 0)).split(), str(make(other, 1)).split()
    assert first[:512] == second[:512]
    assert first[512:] != second[512:600]


def test_written_prompts_are_sent_unchanged() -> None:
    chat = ({"role": "user", "content": "u"},)
    items = [Item(prompt_tokens=1, output_tokens=1, prompt="written", tokens=(4,))]
    writer = RequestWriter(target(), token_prompts(0), token_prompts(1))
    assert body(writer.requests(items)[0].request)["prompt"] == "written"
    items = [Item(prompt_tokens=1, output_tokens=1, prompt=chat, tokens=(4,))]
    with pytest.raises(InvalidConfig, match="request 1 .* --api chat"):
        writer.requests(items)
