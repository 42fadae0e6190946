import asyncio
import threading
from typing import Any

import pytest

from chairlift.server.encoder import TokenLimit
from chairlift.text.tokenizer import Tokenizer
from fakes.http_world import HttpWorld
from fakes.patience import HANG_S


@pytest.mark.parametrize("texts", [["Hello world, " * 50_000], ["Hello world, " * 1_000] * 50], ids=["long", "many"])
async def test_much_text_does_not_hold_up_the_others_while_it_is_tokenized(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, may_begin, encode = HttpWorld().context, threading.Event(), Tokenizer.encode
    has_waited = list[bool]()

    def late(*given: Any, **more: Any) -> list[int]:
        has_waited.append(may_begin.wait(HANG_S))
        return encode(*given, **more)

    monkeypatch.setattr(Tokenizer, "encode", late)
    task = asyncio.ensure_future(context.encoder.encode_all(texts, True, TokenLimit(10**6, "are too many")))
    for _ in range(10):  # turns of a loop that does not stand still
        await asyncio.sleep(0.001)
    may_begin.set()
    await task
    assert all(has_waited)
    assert [context.tokenizer.decode(ids) for ids in task.result()] == texts
