import asyncio

import pytest

from fakes.http_world import HttpWorld


@pytest.mark.parametrize("texts", [["Hello world, " * 50_000], ["Hello world, " * 1_000] * 50], ids=["long", "many"])
async def test_much_text_does_not_hold_up_the_others_while_it_is_tokenized(texts: list[str]) -> None:
    context = HttpWorld().context
    task = asyncio.ensure_future(context.encode_all(texts, True))
    num_turns = 0
    while not task.done():
        await asyncio.sleep(0.001)
        num_turns += 1
    assert num_turns > 10  # one or two if the loop had stood still
    assert [context.tokenizer.decode(ids) for ids in task.result()] == texts
