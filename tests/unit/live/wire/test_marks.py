"""What a traced request hears of its way through the engine."""

import logging

import pytest

from chairlift.core.params import SamplingParams
from chairlift.live.wire.messages import Output
from chairlift.live.wire.switchboard import Switchboard
from fakes import submits
from fakes.switchboards import ledger_switchboard

ME = b"me"


def drive(switchboard: Switchboard) -> list[Output]:
    outputs: list[Output] = []
    while switchboard.has_work:
        outputs += switchboard.step().get(ME, [])
    return outputs


def submit(switchboard: Switchboard, key: int, prompt: list[int], max_tokens: int, **more: bool | str) -> None:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    switchboard.submit(ME, submits.submit(key, prompt, params, **more))


def test_a_traced_request_hears_with_its_first_token_how_it_got_there() -> None:
    switchboard = ledger_switchboard()
    submit(switchboard, 1, [5, 6, 7], 3, is_traced=True)
    submit(switchboard, 2, [8, 9], 3)
    outputs = drive(switchboard)
    first, *others = [output for output in outputs if output.key == 1]
    assert first.marks is not None
    assert [phase for phase, _ in first.marks] == ["queued", "prompt"]
    assert first.marks[0][1] <= first.marks[1][1]
    assert all(output.marks is None for output in [*others, *(o for o in outputs if o.key == 2)])


def test_a_preemption_is_heard_of_with_the_next_token() -> None:
    switchboard = ledger_switchboard(num_blocks=8, max_model_len=32)
    for key in (1, 2):
        submit(switchboard, key, list(range(10 * key, 10 * key + 10)), 12, is_traced=True)
    heard = [phase for output in drive(switchboard) for phase, _ in output.marks or ()]
    assert heard.count("preempted") >= 1
    assert heard.count("prompt") == heard.count("preempted") + heard.count("queued") == heard.count("preempted") + 2


def test_the_engine_logs_a_request_that_failed_under_its_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    switchboard = ledger_switchboard()
    switchboard.engine.runner.fail_steps = frozenset({1})  # type: ignore[attr-defined]
    submit(switchboard, 1, [5, 6, 7], 3, name="my-id")
    assert drive(switchboard)[-1].finish == "error"
    assert "request my-id failed: " in caplog.text
