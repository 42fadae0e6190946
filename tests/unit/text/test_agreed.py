"""What --tokenizer and an llm-serving file say of tokens, beside a model that disagrees."""

from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.build import find_model
from chairlift.config.settings import LlmServing, Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.source import Source
from chairlift.text import agreed
from chairlift.text.find import load_tokenizer
from chairlift.text.tokenizer import Tokenizer
from fakes.small_tokenizer import small_tokenizer
from fakes.tiny_model import write_tiny_model
from unit.text.vocabularies import model_file, piece_list

INTERNLM = "<s><|User|>:{}<eoh>\n<|Bot|>:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("agreed") / "tiny")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A tokenizer of 299 tokens; the tiny model has more, the embedded one far more."""
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model_file(*piece_list()))
    return path


def test_a_named_tokenizer_that_does_not_fit_is_refused_with_both_sizes_and_the_way_out(other: Path) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        find_model(Settings(tokenizer=other))
    [line] = str(refusal.value).splitlines()
    assert f"--tokenizer {other} does not fit SmolLM2-135M-Instruct: it has 299 tokens, the model 49,152" in line
    assert "leave --tokenizer out" in line and "--model" in line


def test_a_named_tokenizer_that_fits_is_used(folder: Path) -> None:
    found = find_model(Settings(model=str(folder), tokenizer=folder / "tokenizer.json"))
    assert found.settings.tokenizer == folder / "tokenizer.json"


def test_a_model_without_a_tokenizer_takes_one_that_fits(folder: Path, tmp_path: Path) -> None:
    bare = write_tiny_model(tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    assert find_model(Settings(model=str(bare), tokenizer=folder)).config.warnings == ()


def test_a_files_tokenizer_is_never_the_embedded_models(other: Path) -> None:
    found = find_model(Settings(compat=LlmServing(vocab_file=other)))
    assert found.settings.tokenizer is None
    [line] = found.config.warnings
    assert f"vocab_file {other} is not used: the embedded SmolLM2-135M-Instruct has its own tokenizer" in line


def test_a_files_tokenizer_is_used_where_it_fits_and_dropped_where_not(folder: Path, tmp_path: Path) -> None:
    own, bare = Settings(model=str(folder)), write_tiny_model(tmp_path / "wide", vocab_size=900)
    found = find_model(replace(own, compat=LlmServing(vocab_file=folder / "tokenizer.json")))
    assert (found.settings.tokenizer, found.config.warnings) == (folder / "tokenizer.json", ())
    assert find_model(found.settings) == found
    found = find_model(Settings(model=str(bare), compat=LlmServing(vocab_file=folder / "tokenizer.json")))
    assert found.settings.tokenizer is None
    assert f"it has {small_tokenizer().vocab_size} tokens, the model 900" in found.config.warnings[-1]


def test_the_end_token_of_a_file_counts_where_it_is_special_to_the_tokenizer(folder: Path) -> None:
    """7 is <gh_stars> to the embedded model, and a character to the tiny one."""
    assert find_model(Settings(compat=LlmServing(end_token=2))).config.eos_ids == (2,)
    assert find_model(Settings(compat=LlmServing(end_token=7))).config.eos_ids == (2, 7)
    found = find_model(Settings(model=str(folder), compat=LlmServing(end_token=7)))
    assert (found.config.eos_ids, found.settings.compat.end_token) == ((1,), None)
    piece = small_tokenizer().piece(7)
    assert (
        found.config.warnings[-1] == f"model_config.end_token 7 is not used: in the model's tokenizer it is {piece!r}"
    )


def test_each_tokenizer_is_loaded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Path | None] = []

    def load(source: Source, override: Path | None = None) -> Tokenizer:
        loaded.append(override)
        return load_tokenizer(source, override)

    monkeypatch.setattr(agreed, "load_tokenizer", load)
    path = folder / "tokenizer.json"
    compat = LlmServing(vocab_file=path, end_token=7, prompt_template=INTERNLM)
    find_model(Settings(model=str(folder), compat=compat))
    assert sorted(loaded, key=str) == [path, None]


def test_a_beginning_is_no_end(folder: Path) -> None:
    assert find_model(Settings(model=str(folder), compat=LlmServing(end_token=0))).config.eos_ids == (1,)


def test_a_prompt_template_of_tokens_that_the_model_lacks_is_not_used(folder: Path) -> None:
    compat = LlmServing(model_name="internlm_7b", prompt_template=INTERNLM)
    found = find_model(Settings(model=str(folder), compat=compat))
    assert found.settings.compat.prompt_template == "{}"
    assert "the model's tokenizer has no <|User|>, <eoh>, <|Bot|>" in found.config.warnings[-1]
    chat = LlmServing(prompt_template="<|im_start|>{}<|im_end|>")
    assert find_model(Settings(model=str(folder), compat=chat)).settings.compat == chat
