"""The Python interface with adapters of a tiny model."""

from pathlib import Path

import pytest

from chairlift import LLM, SamplingParams
from chairlift.cli.main import main
from chairlift.core.errors import InvalidConfig, InvalidRequest
from fakes.adapters import write_adapter

PARAMS = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
PROMPTS = ["Hello there", "One two three four"]


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
    with pytest.raises(InvalidRequest, match=r"lora_request: must be the name of an adapter of LLM\(..., lora="):
        llm.generate("a", lora_request=object())  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="'three' is not known; there are one, two, late"):
        llm.generate(PROMPTS, PARAMS, lora_request="three")
    with pytest.raises(InvalidRequest, match="give lora or lora_dir"):
        plain.generate(PROMPTS, PARAMS, lora_request="one")


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


def test_what_cannot_be_served_is_refused_at_the_start(tiny_model: Path, tmp_path: Path) -> None:
    broken = write_adapter(tmp_path / "broken", use_dora=True)
    with pytest.raises(InvalidConfig, match="use_dora"):
        LLM(str(tiny_model), lora={"broken": broken})
    with pytest.raises(InvalidConfig, match="NAME=PATH"):
        LLM(str(tiny_model), lora="nothing")
    with pytest.raises(InvalidConfig, match="not supported with --tensor-parallel 2"):
        LLM(str(tiny_model), lora_dir=str(tmp_path), tensor_parallel=2)
