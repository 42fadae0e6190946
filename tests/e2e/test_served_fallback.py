"""A served model of a family that we do not declare: chosen by itself, and its answers are those of transformers."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import transformers

from fakes.patience import HANG_S
from fakes.served import chairlift, serve
from fakes.small_tokenizer import BOS, EOS, TEMPLATE, trained

pytestmark = pytest.mark.nightly

PROMPTS = ["The quick brown", "Hello world, hello", "Paris is the capital of France. Paris", "The lazy dog"]
SHAPE = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fallback") / "neox"
    core = trained()
    ids = {"bos_token_id": core.token_to_id(BOS), "eos_token_id": core.token_to_id(EOS)}
    torch.manual_seed(3)
    config = transformers.GPTNeoXConfig(
        vocab_size=core.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=256, initializer_range=0.3, **ids,
    )  # fmt: skip
    transformers.GPTNeoXForCausalLM(config).save_pretrained(folder)
    core.save(str(folder / "tokenizer.json"))
    words = {"bos_token": BOS, "eos_token": EOS, "chat_template": TEMPLATE, "add_bos_token": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    return folder


def post(url: str, path: str, body: dict[str, Any]) -> Any:
    return httpx.post(url + path, json=body, timeout=HANG_S).raise_for_status().json()["choices"][0]


def test_greedy_answers_are_those_of_transformers_and_the_rest_of_the_api_is_there(
    folder: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "log", "--model", folder, "--kv-memory", "8MiB", "--dtype", "float32") as served:
        bodies = [{"prompt": prompt, "max_tokens": 20, "temperature": 0, "ignore_eos": True} for prompt in PROMPTS]
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            answers = list(pool.map(lambda body: post(served.url, "/v1/completions", body)["text"], bodies))
        again = post(served.url, "/v1/completions", bodies[2] | {"logprobs": 2})  # its prompt is cached now
        shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": SHAPE}}
        asked = {"messages": [{"role": "user", "content": "Hello"}], "response_format": shape, "max_tokens": 40}
        shaped = post(served.url, "/v1/chat/completions", asked)["message"]["content"]
    assert "GPTNeoXForCausalLM is not one of our models: transformers computes it" in served.output
    reference, core = transformers.GPTNeoXForCausalLM.from_pretrained(folder), trained()
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        ids = torch.tensor([core.encode(prompt).ids])
        whole = reference.generate(ids, max_new_tokens=20, do_sample=False, eos_token_id=-1, pad_token_id=0)
        assert answer == core.decode(whole[0, ids.shape[1] :].tolist())
    assert again["text"] == answers[2]
    assert len(again["logprobs"]["tokens"]) == 20
    assert isinstance(json.loads(shaped)["n"], int)


def test_a_plan_of_it_names_its_size_and_what_it_cannot_do_is_one_line(folder: Path) -> None:
    planned = chairlift("plan", folder, "--device", "h100", "--json")
    facts = json.loads(planned.stdout)
    assert facts["parameters"] == sum(
        p.numel() for p in transformers.GPTNeoXForCausalLM.from_pretrained(folder).parameters()
    )
    assert facts["kv_token_bytes"] == 2 * 2 * 4 * 2 * 16 * (2 if facts["dtype"] == "float32" else 1)
    refused = chairlift("generate", "--model", folder, "--exact", "Hello")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "exact: transformers computes this model" in refused.stderr
