"""`LLMEngine` on a real (tiny) model, in the loops that vLLM's scripts make."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chairlift import (
    LLM,
    ChairliftError,
    EngineArgs,
    EngineUnavailable,
    InvalidRequest,
    LLMEngine,
    RequestOutput,
    RequestOutputKind,
    SamplingParams,
)
from chairlift.lora.request import LoRARequest
from e2e.conftest import IN_PYTHON
from fakes.adapters import write_adapter

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
ENDLESS = replace(GREEDY, max_tokens=5000)


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Iterator[LLMEngine]:
    made = LLMEngine.from_engine_args(EngineArgs(str(tiny_model), max_num_seqs=8, **IN_PYTHON))
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(tiny_model: Path) -> Iterator[LLM]:
    with LLM(str(tiny_model), **IN_PYTHON) as made:
        yield made


@pytest.fixture(autouse=True)
def _gives_everything_back(engine: LLMEngine) -> Iterator[None]:
    yield
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free) == (0, 0, 600)
    assert not engine.has_unfinished_requests()


def steps(engine: LLMEngine) -> Iterator[RequestOutput]:
    while engine.has_unfinished_requests():
        yield from engine.step()


def ended(engine: LLMEngine) -> dict[str, RequestOutput]:
    return {output.request_id: output for output in steps(engine) if output.finished}


def test_requests_that_come_between_steps_get_what_they_get_alone(engine: LLMEngine, alone: LLM) -> None:
    prompts = [f"{word} and" for word in ("One", "Two", "Three", "Four")]
    found: dict[str, RequestOutput] = {}
    sizes = []
    for index, prompt in enumerate(prompts):
        assert engine.add_request(str(index), prompt, GREEDY) == str(index)
        sizes.append(engine.get_num_unfinished_requests())
        for output in engine.step():
            found[output.request_id] = output
    found |= ended(engine)
    assert sizes == [1, 2, 3, 4]
    expected = alone.generate(prompts, GREEDY)
    assert [found[str(i)].text for i in range(4)] == [output.text for output in expected]
    assert [found[str(i)].prompt for i in range(4)] == prompts


def test_outputs_show_what_their_kind_says(engine: LLMEngine, alone: LLM) -> None:
    (expected,) = alone.generate("Hello", GREEDY)
    kinds = RequestOutputKind
    for kind in kinds:
        engine.add_request(kind.name, "Hello", replace(GREEDY, output_kind=kind))
    seen: dict[str, list[RequestOutput]] = {kind.name: [] for kind in kinds}
    for output in steps(engine):
        seen[output.request_id].append(output)
    assert [len(seen[kind.name]) for kind in (kinds.CUMULATIVE, kinds.DELTA, kinds.FINAL_ONLY)] == [12, 12, 1]
    assert seen["CUMULATIVE"][-1].text == seen["FINAL_ONLY"][-1].text == expected.text
    assert "".join(output.outputs[0].text for output in seen["DELTA"]) == expected.text
    assert all([output.finished for output in outputs][-1] for outputs in seen.values())


def test_samples_stop_strings_and_searches(engine: LLMEngine, alone: LLM) -> None:
    text = alone.generate("Hello", GREEDY)[0].text
    params = {
        "stopped": replace(ENDLESS, stop=(text[3:6],)),
        "several": SamplingParams(n=3, temperature=1.0, seed=1, max_tokens=5, ignore_eos=True),
        "search": SamplingParams(beam_width=3, n=2, max_tokens=5, temperature=0),
    }
    for name, each in params.items():
        engine.add_request(name, "Hello", each)
    found = ended(engine)
    for name, each in params.items():
        (expected,) = alone.generate("Hello", each)
        assert [output.text for output in found[name].outputs] == [output.text for output in expected.outputs]


def test_aborted_requests_end_and_their_ids_are_free(engine: LLMEngine) -> None:
    for name in ("a", "b", "c"):
        engine.add_request(name, "Hello", ENDLESS)
    engine.step()
    engine.abort_request(["a", "b", "absent"])
    assert engine.get_num_unfinished_requests() == 1
    engine.abort_request("c")
    assert engine.step() == []
    engine.add_request("a", "Hello", GREEDY)
    assert ended(engine)["a"].outputs[0].finish_reason == "length"


def test_bad_requests_are_refused_and_leave_nothing(engine: LLMEngine) -> None:
    engine.add_request("a", "Hello", GREEDY)
    for name, prompt, params, field in (
        ("a", "Hello", GREEDY, "request_id"),
        (5, "Hello", GREEDY, "request_id"),
        ("b", ["Hello"], GREEDY, "prompt"),
        ("b", "Hello", {"top_k": 1}, "sampling_params"),
        ("b", [2] * 10000, GREEDY, "prompt"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            engine.add_request(name, prompt, params)  # type: ignore[arg-type]
        assert caught.value.field == field
    with pytest.raises(InvalidRequest, match="no adapters are taken; .*in Python enable_lora=True"):
        engine.add_request("b", "Hello", GREEDY, lora_request=LoRARequest("a", 1, "a"))
    assert list(ended(engine)) == ["a"]


def test_an_error_ends_its_own_request_alone(engine: LLMEngine) -> None:
    wide = SamplingParams(beam_width=8, max_tokens=4000, temperature=0)  # more than the pool holds
    engine.add_request("good", "Hello", GREEDY)
    engine.add_request("bad", [2] * 5000, wide)
    with pytest.raises(ChairliftError):
        list(steps(engine))
    assert list(ended(engine)) == ["good"]


def test_one_that_is_closed_refuses(tiny_model: Path) -> None:
    made = LLMEngine(str(tiny_model), **IN_PYTHON)
    made.add_request("a", "Hello", ENDLESS)
    made.step()
    made.close()
    with pytest.raises(ChairliftError, match="closed; make another"):
        made.step()
    with pytest.raises(EngineUnavailable, match="closed; make another"):
        made.add_request("b", "Hello", GREEDY)


def test_a_script_of_several_adapters(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As vLLM's example of offline LoRA goes, with quantised weights or without: one slot, and more adapters."""
    path = {name: str(write_adapter(tmp_path / name, seed=seed)) for seed, name in enumerate(("sql", "chat"), 1)}
    plain = SamplingParams(temperature=0.0, logprobs=1, max_tokens=16)
    to_do: list[tuple[str, SamplingParams, LoRARequest | None]] = [
        ("The lift goes", plain, None),
        ("Snow falls", SamplingParams(temperature=0.8, top_k=5, presence_penalty=0.2, max_tokens=16), None),
        ("Name the airport", plain, LoRARequest("sql", 1, path["sql"])),
        ("Name the airport", plain, LoRARequest("sql-again", 2, path["sql"])),
        ("Name the airport", plain, LoRARequest("chat", 3, path["chat"])),
    ]
    args = EngineArgs(
        model=str(tiny_model), enable_lora=True, max_loras=1, max_lora_rank=8, max_cpu_loras=2, max_num_seqs=256,
        **IN_PYTHON,
    )  # fmt: skip
    engine = LLMEngine.from_engine_args(args)
    texts: dict[str, str] = {}
    request_id = 0
    while to_do or engine.has_unfinished_requests():
        if to_do:
            prompt, sampling_params, lora_request = to_do.pop(0)
            engine.add_request(str(request_id), prompt, sampling_params, lora_request=lora_request)
            request_id += 1
        request_outputs: list[RequestOutput] = engine.step()
        for request_output in request_outputs:
            if request_output.finished:
                print(request_output)
                texts[request_output.request_id] = request_output.outputs[0].text
    del engine
    assert len(texts) == capsys.readouterr().out.count("RequestOutput(") == 5
    named = LLM(str(tiny_model), lora=path, **IN_PYTHON)
    answers = [named.generate("Name the airport", plain, lora_request=name)[0].text for name in ("sql", "sql", "chat")]
    assert [texts["2"], texts["3"], texts["4"]] == answers and answers[1] != answers[2]
