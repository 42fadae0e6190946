import asyncio
from collections.abc import Iterator

import pytest

from chairlift.core.errors import EngineUnavailable, InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.server.answer import Answer, Delta, RequestFailed, start_all
from chairlift.server.request_log.record import Record
from fakes.http_world import HttpWorld
from fakes.patience import turns


def ask(world: HttpWorld, **params: object) -> Answer:
    return Answer(world.context, Record("id", False, False), world.tokenizer.encode("Hi"), SamplingParams(**params))


class Reading:
    """Reads answers until all of them have ended, or one has failed."""

    def __init__(self, *answers: Answer) -> None:
        self.heard: list[tuple[int, Delta]] = []
        self.first = asyncio.get_running_loop().create_future()
        self.done = asyncio.get_running_loop().create_future()
        self._num_open = sum(answer.params.num_samples for answer in answers)

    @classmethod
    async def of(cls, *answers: Answer) -> "Reading":
        """That has started them."""
        reading = cls(*answers)
        await start_all(answers, reading)
        return reading

    def add(self, index: int, delta: Delta) -> None:
        self.heard.append((index, delta))
        if not self.first.done():
            self.first.set_result(None)
        self._num_open -= delta.finish is not None
        if not self._num_open:
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


async def read(answer: Answer) -> list[Delta]:
    reading = await Reading.of(answer)
    await reading.done
    return [delta for _, delta in reading.heard]


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


async def test_a_prompt_of_hidden_tokens_is_read_once_for_all_samples() -> None:
    class Prompt(list[int]):
        num_read = 0

        def __reversed__(self) -> Iterator[int]:
            for token in super().__reversed__():
                Prompt.num_read += 1
                yield token

    world = HttpWorld("Hello")
    prompt = Prompt([world.eos_id] * 50)
    answer = Answer(world.context, Record("id", False, False), prompt, SamplingParams(n=4))
    assert Prompt.num_read <= 50
    assert [delta.text for delta in await read(answer)].count("Hello") == 4


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
    reading = await Reading.of(answer)
    await reading.first
    answer.close()
    answer.close()
    await turns()
    assert len(reading.heard) == 1
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


async def test_a_sample_that_fails_frees_the_others() -> None:
    world = HttpWorld()
    world.client.fails_at = 2
    with pytest.raises(RequestFailed):
        await read(ask(world, n=2))
    assert world.client.requests[0].aborts == [None]


async def test_several_answers_are_read_as_they_come() -> None:
    world = HttpWorld("Hello there.")
    reading = await Reading.of(ask(world), ask(world))
    await reading.done
    assert [index for index, _ in reading.heard[:4]] == [0, 1, 0, 1]
    for index in (0, 1):
        assert "".join(delta.text for at, delta in reading.heard if at == index) == "Hello there."


async def test_an_engine_that_dies_fails_the_answer() -> None:
    world = HttpWorld()
    world.client.dies_at = 1
    with pytest.raises(EngineUnavailable):
        await read(ask(world))


async def test_a_reader_that_fails_loses_its_answer_and_is_told() -> None:
    world = HttpWorld()
    answer = ask(world)
    reading = await Reading.of(answer)
    reading.add = lambda index, delta: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await reading.done
    assert world.client.requests[0].aborts == [None]


async def test_a_held_answer_keeps_what_comes_and_hands_it_out_in_order() -> None:
    world = HttpWorld("Hello there.")
    answer = ask(world)
    reading = await Reading.of(answer)
    await reading.first
    answer.hold()
    await turns()
    assert len(reading.heard) == 1 and not reading.done.done()
    answer.release()
    assert [delta.token for _, delta in reading.heard] == world.answer
    assert reading.done.done()


async def test_an_engine_that_dies_while_an_answer_is_held_does_not_overtake_its_tokens() -> None:
    world = HttpWorld("Hello there.")
    world.client.dies_at = 2
    answer = ask(world)
    reading = await Reading.of(answer)
    answer.hold()
    await turns()
    assert reading.heard == [] and not reading.done.done()
    answer.release()
    assert [delta.token for _, delta in reading.heard] == world.answer[:2]
    with pytest.raises(EngineUnavailable):
        await reading.done
