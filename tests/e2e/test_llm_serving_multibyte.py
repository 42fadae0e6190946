"""Answers in Chinese, Cyrillic and emoji, read from llm-serving's streams as its client does: through `requests`."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import requests

from e2e.conftest import LIMITS, NUMBERS
from fakes.patience import HANG_S
from fakes.served import Served, serve
from fakes.small_tokenizer import trained_on
from fakes.tiny_model import write_tiny_model

NEXT_LINE = 0x85  # a line end to clients that take the bytes for Latin-1
CHINESE = [chr(code) for code in range(0x4E00, 0x9FA5) if NEXT_LINE in chr(code).encode() or code % 28 == 0]
CHARACTERS = [*CHINESE[::2], *map(chr, (*range(0x410, 0x450), *range(0x1F600, 0x1F640)))]
PROMPTS = [f"{character}?" for character in CHARACTERS[::30]]
PARAMETERS = {"do_sample": "False", "max_new_tokens": 10, "return_full_text": "True"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = write_tiny_model(tmp_path_factory.mktemp("models") / "multibyte", trained_on(CHARACTERS, 4000))
    log = tmp_path_factory.mktemp("multibyte") / "log"
    with serve(log, "--model", model, *LIMITS, *NUMBERS) as served:
        yield served


def streamed(served: Served, prompt: str) -> str | None:
    """The summary; None where a line is no JSON, which ends the client's thread."""
    body = {"inputs": prompt, "parameters": PARAMETERS}
    url = f"{served.url}/models/llama2/generate_stream"
    text = None
    with requests.post(url, json=body, stream=True, timeout=HANG_S) as response:
        for line in response.iter_lines(decode_unicode=True):
            try:
                text = json.loads(line)["data"][0]["generated_text"]
            except json.JSONDecodeError:
                return None
    return text


def whole(served: Served, prompt: str) -> str:
    body = {"inputs": prompt, "parameters": PARAMETERS}
    response = httpx.post(f"{served.url}/models/llama2/generate", json=body, timeout=HANG_S)
    return str(json.loads(response.content)["generated_text"])


def test_every_answer_arrives_with_its_characters(served: Served) -> None:
    asked = (PROMPTS * 300)[:300]
    with ThreadPoolExecutor(8) as threads:
        truth = dict(zip(PROMPTS, threads.map(lambda prompt: whole(served, prompt), PROMPTS), strict=True))
        texts = list(threads.map(lambda prompt: streamed(served, prompt), asked))
    assert sum(NEXT_LINE in text.encode() for text in truth.values()) > len(truth) / 10
    lost = texts.count(None)
    garbled = sum(text not in (None, truth[prompt]) for text, prompt in zip(texts, asked, strict=True))
    assert (lost, garbled) == (0, 0)
