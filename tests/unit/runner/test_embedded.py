"""The embedded default against transformers on the same dequantised weights: same greedy text, alone and together."""

from dataclasses import replace

import pytest
import torch
import transformers

from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.events import Token
from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.files.gguf.header import read_header
from chairlift.models.source import EMBEDDED_NAME, Source, embedded_path, load_model_config
from chairlift.models.spec import HF_NAMES
from chairlift.models.tensors import expected_parts
from chairlift.runner.start.load import Loaded, load_runner
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.source import in_order
from chairlift.text.find import load_tokenizer
from fakes.clocks import CountingClock

pytestmark = pytest.mark.slow

NUM_TOKENS = 8
QUESTIONS = [
    "What is the capital of France?", "Name three primary colours.", "Write a haiku about snow.", "Count from 1 to 10.",
    "Who wrote Hamlet?", "What is 12 + 30?", "Translate 'good morning' to Spanish.", "Explain gravity to a child.",
    "Give me a recipe for pancakes.", "Why is the sky blue?", "List the planets.", "What does HTTP mean?",
    "Tell me a joke.", "def fibonacci(n):", "Summarise the plot of Cinderella.", "How do ski lifts work?",
    "What is a prime number?", "Say hello in five languages.", "¿Dónde está la biblioteca?",
    "Which is heavier, iron or wood?",
]  # fmt: skip


@pytest.fixture(scope="module")
def source() -> Source:
    return Source("gguf", embedded_path(), EMBEDDED_NAME, is_embedded=True)


def load(source: Source, kernels: str) -> Loaded:
    # A start measures the largest step, so it is one that holds the prompts of `make test` and not much more.
    settings = Settings(device="cpu", dtype="float32", kernels=kernels, max_model_len=128, max_step_tokens=128)
    return load_runner(settings, source, load_model_config(source))


@pytest.fixture(scope="module")
def loaded(source: Source) -> Loaded:
    return load(source, "torch")


@pytest.fixture(scope="module", params=[5, pytest.param(len(QUESTIONS), marks=pytest.mark.nightly)])
def prompts(source: Source, request: pytest.FixtureRequest) -> list[list[int]]:
    tokenizer = load_tokenizer(source, None)
    questions = QUESTIONS[: request.param]
    chats = (f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n" for question in questions)
    return [tokenizer.encode(chat) for chat in chats]


@pytest.fixture(scope="module")
def expected(source: Source, prompts: list[list[int]]) -> list[list[int]]:
    config = load_model_config(source)
    (layer,) = set(config.layers)
    heads, rotation = layer.attention, layer.attention.rotation
    assert rotation is not None and rotation.scaling is None
    reference_config = transformers.LlamaConfig(
        vocab_size=config.vocab_size, hidden_size=config.hidden_size, intermediate_size=layer.feed_forward.width,
        num_hidden_layers=config.num_layers, num_attention_heads=heads.num_heads,
        num_key_value_heads=heads.num_kv_heads, max_position_embeddings=config.max_model_len,
        rms_norm_eps=config.rms_norm_eps, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": rotation.theta},
    )  # fmt: skip
    tensors = GgufTensors(read_header(source.path))
    parts = zip(expected_parts(replace(config, names=HF_NAMES)), expected_parts(config), strict=True)
    weights = {
        wanted.name: in_order(tensors.read(part.name, part.shape), part.order) for wanted, part in parts
    }  # fmt: skip
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    # Which draws no numbers for weights that are given.
    reference = transformers.LlamaForCausalLM.from_pretrained(None, config=reference_config, state_dict=weights).eval()
    texts = []
    for prompt in prompts:
        output = reference.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), do_sample=False,
            max_new_tokens=NUM_TOKENS, eos_token_id=list(config.eos_ids), pad_token_id=config.eos_ids[0],
        )  # fmt: skip
        texts.append(output[0, len(prompt) :].tolist())
    return texts


def generate(loaded: Loaded, source: Source, prompts: list[list[int]]) -> list[list[int]]:
    engine = Engine(Scheduler(loaded.limits, Fcfs()), loaded.runner, CountingClock())
    stops = frozenset(load_model_config(source).eos_ids)
    for index, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS)
        request = Request(
            id=RequestId(index), prompt=tuple(prompt), params=params, max_output=NUM_TOKENS, seed=0, stop_ids=stops
        )
        engine.add((request,))
    texts: list[list[int]] = [[] for _ in prompts]
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Token):
                texts[event.request].append(event.token)
    return texts


@pytest.mark.nightly
def test_each_prompt_alone_gives_the_text_of_transformers(
    loaded: Loaded, source: Source, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    assert [generate(loaded, source, [prompt])[0] for prompt in prompts] == expected


def test_all_prompts_in_one_batch_give_the_text_of_transformers(
    loaded: Loaded, source: Source, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    assert generate(loaded, source, prompts) == expected


@pytest.mark.nightly
def test_native_kernels_in_float32_give_the_text_of_transformers(
    source: Source, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    native = pytest.importorskip("chairlift.runner.native.ops")
    if not native.available():
        pytest.skip("the native kernels are not built here")
    assert generate(load(source, "native"), source, prompts) == expected
