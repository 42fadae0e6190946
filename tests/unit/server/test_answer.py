import pytest

from chairlift.core.errors import EngineUnavailable, InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.server.answer import Answer, Delta, RequestFailed, merge
from fakes.http_world import HttpWorld


def ask(world: HttpWorld, **params: object) -> Answer:
    return Answer(world.context, world.tokenizer.encode("Hi"), SamplingParams(**params))


async def read(answer: Answer) -> list[Delta]:
    return [delta async for delta in answer.deltas()]


async def test_every_token_is_a_delta_and_the_last_one_finishes() -> None:
    world = HttpWorld("Hello there.")
    deltas = await read(ask(world))
    assert [delta.token for delta in deltas] == world.answer
    assert "".join(delta.text for delta in deltas) == "Hello there."
    assert [delta.finish for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert (deltas[-1].finish, deltas[-1].stop) == ("stop", None)


async def test_the_last_token_of_a_capped_answer_keeps_its_text() -> None:
    deltas = await read(ask(HttpWorld("Hello world"), max_tokens=1))
    assert [(delta.text, delta.finish) for delta in deltas] == [("Hello", "length")]


async def test_half_a_character_is_held_back_and_comes_with_its_other_half() -> None:
    world = HttpWorld("é")  # two byte tokens
    deltas = await read(ask(world))
    assert [delta.text for delta in deltas] == ["", "é", ""]


async def test_half_a_character_at_the_end_is_not_lost() -> None:
    deltas = await read(ask(HttpWorld("é"), max_tokens=1))
    assert [(delta.text, delta.finish) for delta in deltas] == [("\ufffd", "length")]


async def test_a_stop_string_ends_a_sample_and_frees_it() -> None:
    world = HttpWorld("Hello world, hello there.")
    answer = ask(world, stop=("wor",), n=2)
    deltas = await read(answer)
    for sample in (0, 1):
        own = [delta for delta in deltas if delta.sample == sample]
        assert "".join(delta.text for delta in own) == "Hello "
        assert (own[-1].finish, own[-1].stop) == ("stop", "wor")
    assert world.client.requests[0].aborts == [0, 1]


async def test_a_stop_token_is_named_and_not_shown() -> None:
    world = HttpWorld("Hello world")
    deltas = await read(ask(world, stop_token_ids=(world.answer[1],)))
    assert "".join(delta.text for delta in deltas) == "Hello"
    assert (deltas[-1].finish, deltas[-1].stop) == ("stop", world.answer[1])


async def test_a_stop_token_is_shown_when_asked_for() -> None:
    world = HttpWorld("Hello world")
    answer = ask(world, stop_token_ids=(world.answer[1],), include_stop_str_in_output=True)
    assert "".join(delta.text for delta in await read(answer)) == "Hello world"


async def test_closing_an_unfinished_answer_aborts_it() -> None:
    world = HttpWorld()
    answer = ask(world)
    deltas = answer.deltas()
    await anext(deltas)
    answer.close()
    answer.close()
    assert world.client.requests[0].aborts == [None]


async def test_a_request_that_does_not_fit_is_refused_before_it_is_submitted() -> None:
    world = HttpWorld()
    with pytest.raises(InvalidRequest, match="whole KV cache of 400 tokens"):
        ask(world, max_tokens=450)
    assert world.client.requests == []


async def test_an_engine_that_is_not_ready_is_unavailable() -> None:
    world = HttpWorld()
    world.client.is_ready = False
    with pytest.raises(EngineUnavailable):
        ask(world)


async def test_a_refusal_by_the_engine_names_the_field() -> None:
    world = HttpWorld()
    world.client.refusal = ("n", "too many")
    with pytest.raises(InvalidRequest) as caught:
        await read(ask(world))
    assert caught.value.field == "n"


async def test_a_failure_of_the_engine_is_not_the_request_s_fault() -> None:
    world = HttpWorld()
    world.client.fails_at = 2
    with pytest.raises(RequestFailed, match="the runner failed"):
        await read(ask(world))


async def test_several_answers_are_merged_as_they_come() -> None:
    world = HttpWorld("Hello there.")
    answers = [ask(world), ask(world)]
    merged = [item async for item in merge(answers)]
    for index in (0, 1):
        assert "".join(delta.text for at, delta in merged if at == index) == "Hello there."


async def test_one_failing_answer_ends_the_merge() -> None:
    world = HttpWorld()
    world.client.dies_at = 1
    answers = [ask(world), ask(world)]
    with pytest.raises(EngineUnavailable):
        _ = [item async for item in merge(answers)]
