"""Where a model's tokenizer is looked for."""

from pathlib import Path

import pytest
import torch

from chairlift.models.source import Source
from chairlift.text.find import load_tokenizer
from fakes.ckpt import write_ckpt
from fakes.small_tokenizer import trained


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trained().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_checkpoints_tokenizer_lies_beside_it(folder: Path) -> None:
    path = write_ckpt(folder / "llama.ckpt", {"w": torch.ones(2)})
    for source in (Source("ckpt", path, "llama"), Source("ckpt", folder, "llama")):
        assert load_tokenizer(source).encode("hello") == load_tokenizer(Source("folder", folder, "m")).encode("hello")


def test_a_file_that_is_named_is_the_tokenizer(folder: Path) -> None:
    other = folder / "other.json"
    (folder / "tokenizer.json").rename(other)
    assert load_tokenizer(Source("folder", other, "other")).encode("hello")
