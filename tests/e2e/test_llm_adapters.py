"""The Python interface with adapters of a tiny model."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from chairlift import LLM, AsyncEngineArgs, AsyncLLM, LoRARequest, RequestOutput, SamplingParams
from chairlift.cli.main import main
from chairlift.core.errors import InvalidConfig, InvalidRequest
from fakes.adapters import write_adapter
from fakes.hub_server import served_hub
from fakes.served import chairlift

PARAMS = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
PROMPTS = ["Hello there", "One two three four"]
HI = [{"role": "user", "content": "Hello"}]
OPTIONS: dict[str, Any] = {"kernels": "torch", "dtype": "float32", "kv_memory": "16MiB"}


def tokens(completions) -> list[list[int]]:
    return [list(completion.outputs[0].token_ids) for completion in completions]


@pytest.mark.parametrize("kernels", ["torch", "native"])
def test_prompts_are_completed_with_the_named_adapter(tiny_model: Path, tmp_path: Path, kernels: str) -> None:
    write_adapter(tmp_path / "found" / "late", seed=3, rank=2)
    named = {"one": write_adapter(tmp_path / "one", seed=1), "two": write_adapter(tmp_path / "two", seed=2, rank=8)}
    llm = LLM(
        str(tiny_model), lora=named, lora_dir=str(tmp_path / "found"), max_loras=2, kernels=kernels, dtype="float32",
        kv_memory="16MiB",
    )  # fmt: skip
    base = tokens(llm.generate(PROMPTS, PARAMS))
    seen = {name: tokens(llm.generate(PROMPTS, PARAMS, lora_request=name)) for name in ("one", "two", "late", "one")}
    assert len({str(each) for each in (base, *seen.values())}) == 4
    assert tokens(llm.generate(PROMPTS, PARAMS)) == base
    (whole,) = llm.generate(PROMPTS[:1], PARAMS, lora_request="two")
    assert "".join(llm.stream(PROMPTS[0], PARAMS, lora_request="two")) == whole.outputs[0].text
    plain = LLM(str(tiny_model), kernels=kernels, dtype="float32", kv_memory="16MiB")
    assert tokens(plain.generate(PROMPTS, PARAMS)) == base
    with pytest.raises(InvalidRequest, match="'three' is not known; there are one, two, late"):
        llm.generate(PROMPTS, PARAMS, lora_request="three")
    with pytest.raises(
        InvalidRequest, match="no adapters are taken; give lora or lora_dir, or in Python enable_lora=True"
    ):
        plain.generate(PROMPTS, PARAMS, lora_request="one")


def test_vllm_s_requests_bring_their_adapters(tiny_model: Path, tmp_path: Path) -> None:
    one, two = write_adapter(tmp_path / "one", seed=1), write_adapter(tmp_path / "two", seed=2, rank=8)
    named = LLM(str(tiny_model), lora={"one": one, "two": two}, **OPTIONS)
    (base, first, second, chatted) = (
        tokens(named.generate(PROMPTS, PARAMS)),
        tokens(named.generate(PROMPTS, PARAMS, lora_request="one")),
        tokens(named.generate(PROMPTS, PARAMS, lora_request="two")),
        tokens(named.chat(HI, PARAMS, lora_request="two")),
    )
    llm = LLM(str(tiny_model), enable_lora=True, max_loras=2, max_lora_rank=8, **OPTIONS)
    asked = LoRARequest("one", 1, str(one)), LoRARequest("two", 2, str(two))
    assert tokens(llm.generate(PROMPTS, PARAMS)) == base
    assert tokens(llm.generate(PROMPTS, PARAMS, lora_request=asked[0])) == first
    assert tokens(llm.generate(PROMPTS, PARAMS, lora_request=[asked[1], None])) == [second[0], base[1]]
    assert tokens(llm.generate(PROMPTS, PARAMS, lora_request=("one", asked[1]))) == [first[0], second[1]]
    assert tokens(llm.chat(HI, PARAMS, lora_request=asked[1])) == chatted
    assert tokens(llm.chat([HI, HI], PARAMS, lora_request=[None, asked[1]]))[1:] == chatted
    streamed = "".join(llm.stream(PROMPTS[0], PARAMS, lora_request=asked[0]))
    assert streamed == llm.generate(PROMPTS[0], PARAMS, lora_request="one")[0].text
    pieces = llm.stream_chat(HI, PARAMS, lora_request=asked[1])
    assert "".join(piece.text for piece in pieces) == llm.chat(HI, PARAMS, lora_request="two")[0].text
    with pytest.raises(InvalidRequest, match="lora_request: 1 adapters for 2 prompts"):
        llm.generate(PROMPTS, PARAMS, lora_request=[asked[0]])
    with pytest.raises(InvalidConfig, match=f"one is {one} already, not {two}"):
        llm.generate(PROMPTS, PARAMS, lora_request=LoRARequest("one", 3, str(two)))
    anew = LoRARequest("one", 1, str(two), load_inplace=True)
    assert tokens(llm.generate(PROMPTS, PARAMS, lora_request=anew)) == second
    assert tokens(llm.generate(PROMPTS, PARAMS, lora_request="one")) == second


def test_an_adapter_that_is_brought_and_cannot_be_served_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    llm = LLM(str(tiny_model), enable_lora=True, max_lora_rank=4, **OPTIONS)
    large = write_adapter(tmp_path / "large", rank=8)
    for name, path, told in (
        ("a", "adapters/of/sql", "lora_path: 'adapters/of/sql' is no folder, and no org/name on the hub"),
        ("a", str(tmp_path), "no adapter_config.json in this folder"),
        ("a", str(large), "has rank 8, the most is 4; --max-lora-rank sets it"),
        ("tiny", str(large), "lora_name: tiny is the model's own name"),
    ):
        with pytest.raises(InvalidConfig, match=told):
            llm.generate(PROMPTS, PARAMS, lora_request=LoRARequest(name, 1, path))
    with pytest.raises(InvalidRequest, match="'a' is not known; there are none yet"):
        llm.generate(PROMPTS, PARAMS, lora_request="a")
    with pytest.raises(InvalidRequest, match=r"lora_request: must be LoRARequest\(.*or the name of.*, got dict"):
        llm.generate("a", lora_request={"lora_name": "a"})  # type: ignore[arg-type]


def test_tasks_bring_their_adapters(tiny_model: Path, tmp_path: Path) -> None:
    asked = LoRARequest("one", 1, str(write_adapter(tmp_path / "one")))

    async def answers() -> list[list[list[int]]]:
        arguments = AsyncEngineArgs(str(tiny_model), enable_lora=True, **OPTIONS)
        async with AsyncLLM.from_engine_args(arguments) as llm:

            async def last(outputs: AsyncGenerator[RequestOutput, None]) -> list[list[int]]:
                (*_, final) = [output async for output in outputs]
                return tokens([final])

            return await asyncio.gather(
                last(llm.generate(PROMPTS[0], PARAMS)),
                last(llm.generate(PROMPTS[0], PARAMS, lora_request=asked)),
                last(llm.chat(HI, PARAMS, lora_request=asked)),
            )

    with LLM(str(tiny_model), enable_lora=True, **OPTIONS) as llm:
        expected = [
            tokens(llm.generate(PROMPTS[0], PARAMS)),
            tokens(llm.generate(PROMPTS[0], PARAMS, lora_request=asked)),
            tokens(llm.chat(HI, PARAMS, lora_request=asked)),
        ]
    assert asyncio.run(answers()) == expected
    assert expected[0] != expected[1]


def test_the_command_line_names_an_adapter(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_adapter(tmp_path / "sql", seed=1)

    def generate(*more: object) -> tuple[int, str, str]:
        options = ("--temperature", "0", "--max-tokens", "12", "--ignore-eos", "--kv-memory", "16MiB", *map(str, more))
        code = main(["generate", PROMPTS[0], "--model", str(tiny_model), *options])
        return code, *capsys.readouterr()

    base, adapted = generate(), generate("--lora-dir", tmp_path, "--adapter", "sql")
    assert (base[0], adapted[0]) == (0, 0) and base[1] != adapted[1]
    code, said, error = generate("--lora-dir", tmp_path, "--adapter", "sq")
    assert (code, said) == (2, "") and "--adapter: 'sq' is not known; there are sql" in error
    code, said, error = generate("--adapter", "sql")
    assert (code, said) == (2, "") and "--adapter: no adapters are taken; give lora or lora_dir" in error


def test_what_cannot_be_served_is_refused_at_the_start(tiny_model: Path, tmp_path: Path) -> None:
    broken = write_adapter(tmp_path / "broken", use_dora=True)
    with pytest.raises(InvalidConfig, match="use_dora"):
        LLM(str(tiny_model), lora={"broken": broken})
    with pytest.raises(InvalidConfig, match="NAME=PATH"):
        LLM(str(tiny_model), lora="nothing")
    with pytest.raises(InvalidConfig, match="not supported with --tensor-parallel 2"):
        LLM(str(tiny_model), lora_dir=str(tmp_path), tensor_parallel=2)


@pytest.mark.nightly
def test_an_adapter_may_lie_on_the_hub(tiny_model: Path, tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "one", seed=1)
    asked = ("generate", "--model", tiny_model, "--dtype", "float32", "--max-tokens", 8, "--temperature", 0, "Hello")
    with served_hub({"org/one": {file.name: file.read_bytes() for file in folder.iterdir()}}) as endpoint:
        hub = {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "home")}
        options = ("--adapter", "one", "--download-dir", tmp_path / "kept")
        fetched = chairlift(*asked, "--lora", "one=org/one", *options, environment=hub)
        missing = chairlift(*asked, "--lora", "one=org/two", *options, environment=hub)
    local = chairlift(*asked, "--lora", f"one={folder}", "--adapter", "one")
    assert fetched.returncode == 0, fetched.stderr
    assert fetched.stdout == local.stdout != chairlift(*asked).stdout
    assert missing.returncode == 2
    told = "--lora one: there is no such folder, and on the hub, org/two: neither a local folder nor a model on the hub"
    assert missing.stderr.startswith(f"chairlift: error: {told}")
    assert (tmp_path / "kept" / "models--org--one").is_dir()
