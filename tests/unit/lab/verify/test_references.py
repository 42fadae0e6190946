"""Both references against each other, for every family of models."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chairlift.build import ResolvedModel
from chairlift.config.settings import Settings
from chairlift.lab.verify import dense, hugging_face
from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.source import Source
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.hf import HfTensors
from unit.runner.twins import ALL, DENSE, HYBRIDS, make_twin, random_tokens
from unit.runner.weights.test_gguf import IN_GGUF, write_twin

TEXTS = [random_tokens(40, 1), random_tokens(13, 2)]
COUNTS = [7, 13]


def nothing(done: int, total: int) -> None:
    pass


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", ALL)
def test_our_reference_computes_what_transformers_does(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    found = dense.logits_of(twin.config, HfTensors(tmp_path), "float32", "cpu", TEXTS, COUNTS, nothing)
    assert [len(rows) for rows in found] == COUNTS
    for tokens, rows in zip(TEXTS, found, strict=True):
        expected = twin.reference_logits(tokens)[-len(rows) :].numpy()
        tolerance = 1e-3 if family in HYBRIDS else 1e-4  # of float32 there, after states of long texts
        np.testing.assert_allclose(np.stack(rows), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", DENSE)
def test_transformers_filled_with_our_tensors_computes_what_it_does_with_those_it_reads(
    tmp_path: Path, family: str
) -> None:
    twin = make_twin(tmp_path, family)
    folder, built = (
        ResolvedModel(Settings(load_format=how), Source("folder", tmp_path, "twin"), twin.config)
        for how in ("auto", "dummy")
    )
    both = [
        hugging_face.logits_of(model, lambda: HfTensors(tmp_path), "float32", TEXTS, COUNTS, nothing)
        for model in (folder, built)
    ]
    for own, ours in zip(*both, strict=True):
        np.testing.assert_allclose(np.stack(ours), np.stack(own), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("family", "architecture"), IN_GGUF)
def test_transformers_is_built_from_a_gguf_file(tmp_path: Path, family: str, architecture: str) -> None:
    twin = make_twin(tmp_path, family)
    path = write_twin(twin, tmp_path / "twin.gguf", architecture)
    header = read_header(path)
    model = ResolvedModel(Settings(), Source("gguf", path, "twin"), load_gguf(header))
    found = hugging_face.logits_of(model, lambda: GgufTensors(header), "float32", TEXTS, COUNTS, nothing)
    for tokens, rows in zip(TEXTS, found, strict=True):
        expected = twin.reference_logits(tokens)[-len(rows) :].numpy()
        np.testing.assert_allclose(np.stack(rows), expected, rtol=1e-4, atol=1e-4)


def test_weights_are_rounded_to_what_the_runner_keeps(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "llama-mha")
    wide = dense.logits_of(twin.config, HfTensors(tmp_path), "float32", "cpu", TEXTS, COUNTS, nothing)
    narrow = dense.logits_of(twin.config, HfTensors(tmp_path), "bfloat16", "cpu", TEXTS, COUNTS, nothing)
    assert 1e-3 < np.abs(np.stack(wide[0]) - np.stack(narrow[0])).max() < 3.0


def test_random_weights_have_a_reference_too(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "llama-gqa-tied")
    tensors = DummyTensors(twin.config)
    (own, _) = dense.logits_of(twin.config, tensors, "float32", "cpu", TEXTS, COUNTS, nothing)
    model = ResolvedModel(Settings(load_format="dummy"), Source("folder", tmp_path, "twin"), twin.config)
    (other, _) = hugging_face.logits_of(model, lambda: tensors, "float32", TEXTS, COUNTS, nothing)
    np.testing.assert_allclose(np.stack(own), np.stack(other), rtol=1e-4, atol=1e-5)


def test_a_family_that_transformers_lacks_is_not_compared_and_says_so(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "llama-mha")
    unknown = replace(twin.config, architecture="HillForCausalLM")
    assert hugging_face.why_not(unknown) == "it does not know HillForCausalLM"


def test_experts_are_compared_where_transformers_opens_the_files_itself(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "mixtral")
    assert hugging_face.why_not(twin.config) == ""
    assert hugging_face.why_not(twin.config, is_folder=False) == "it keeps experts in other tensors than this file"


def test_a_model_that_memory_cannot_hold_is_not_compared_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = make_twin(tmp_path, "llama-mha")
    assert hugging_face.why_not(twin.config) == ""
    monkeypatch.setattr(hugging_face.hardware, "free_memory", lambda device: 1000)
    assert "are free" in hugging_face.why_not(twin.config)
    monkeypatch.setattr(hugging_face, "find_spec", lambda name: None)
    assert hugging_face.why_not(twin.config) == "it is not installed"
