import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.models.source import Source, embedded_path
from chairlift.text.find import load_tokenizer
from chairlift.text.tokenizer import Tokenizer
from unit.text.vocabularies import byte_level_json, model_file, piece_list


def load(folder: Path, config: dict[str, Any] | None = None, **files: str) -> Tokenizer:
    if config is not None:
        files["tokenizer_config.json"] = json.dumps(config)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return load_tokenizer(Source("folder", folder, "test"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_text(byte_level_json(), encoding="utf-8")
    return tmp_path


def test_a_vocabulary_alone_is_enough(folder: Path) -> None:
    tokenizer = load(folder)
    assert tokenizer.decode(tokenizer.encode("brown fox")) == "brown fox"
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.chat_template) == (None, None, None)


@pytest.mark.parametrize("token", ["<|a|>", {"content": "<|a|>", "lstrip": False}])
def test_the_settings_name_the_begin_token_as_text_or_as_a_map(folder: Path, token: Any) -> None:
    tokenizer = load(folder, {"bos_token": token, "eos_token": "<|b|>", "add_bos_token": True})
    assert (tokenizer.bos_id, tokenizer.eos_id) == (0, 1)
    assert tokenizer.encode("fox")[0] == 0
    assert tokenizer.template_tokens == {"bos_token": "<|a|>", "eos_token": "<|b|>"}


def test_the_map_of_special_tokens_fills_in(folder: Path) -> None:
    files = {"special_tokens_map.json": json.dumps({"bos_token": "<|b|>", "eos_token": "<|b|>"})}
    tokenizer = load(folder, {"bos_token": "<|a|>"}, **files)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (0, 1)


def test_a_token_with_a_role_becomes_special_but_none_is_invented(folder: Path) -> None:
    tokenizer = load(folder, {"pad_token": "<tool>", "unk_token": "<none>"})
    assert tokenizer.decode(tokenizer.encode("a<tool>")) == "a"
    assert tokenizer.encode("<none>") != [tokenizer.vocab_size - 1]


def test_added_tokens_of_the_settings_join_the_vocabulary(folder: Path) -> None:
    size = load(folder).vocab_size
    listed = {str(size): {"content": "<x>", "special": True}, str(size + 1): {"content": "<y>", "special": False}}
    tokenizer = load(folder, {"added_tokens_decoder": listed})
    assert tokenizer.encode("<x><y>") == [size, size + 1]
    assert tokenizer.decode([size, size + 1]) == "<y>"


def test_an_added_token_that_cannot_get_its_id_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidConfig, match="does not get its id 9999"):
        load(folder, {"added_tokens_decoder": {"9999": {"content": "<x>"}}})


def test_the_template_file_comes_before_the_settings(folder: Path) -> None:
    assert load(folder, {"chat_template": "settings"}).chat_template == "settings"
    assert load(folder, **{"chat_template.jinja": "file"}).chat_template == "file"


def test_of_several_named_templates_the_default_is_taken(folder: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert load(folder, {"chat_template": named}).chat_template == "d"


def test_odd_templates_are_none_and_what_is_nested_too_deep_is_one_line(folder: Path) -> None:
    assert load(folder, {"chat_template": [{"x": 1}, 7, {"name": "default"}]}).chat_template is None
    with pytest.raises(InvalidConfig, match="tokenizer_config.json: not valid JSON"):
        load(folder, **{"tokenizer_config.json": '{"chat_template": ' + "[" * 100_000 + "]" * 100_000 + "}"})


def test_a_sentencepiece_file_alone_adds_its_begin_token(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model_file(*piece_list()))
    tokenizer = load(tmp_path)
    assert tokenizer.encode("the")[0] == tokenizer.bos_id == 1
    assert (tokenizer.eos_id, tokenizer.decode(tokenizer.encode("the hello"))) == (2, "the hello")
    assert load(tmp_path, {"add_bos_token": False}).encode("the")[0] != 1


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_a_named_file_takes_the_place_of_the_models_own(folder: Path, tmp_path_factory: Any, name: str) -> None:
    elsewhere = tmp_path_factory.mktemp("named")
    (elsewhere / "tokenizer.json").write_text(byte_level_json(), encoding="utf-8")
    (elsewhere / "tokenizer.model").write_bytes(model_file(*piece_list()))
    tokenizer = load_tokenizer(Source("gguf", embedded_path(), "x"), elsewhere / name)
    assert tokenizer.vocab_size < 1000
    assert "im_start" in (tokenizer.chat_template or "")
    (folder / "chat_template.jinja").write_text("own")
    assert load_tokenizer(Source("folder", folder, "x"), elsewhere / name).chat_template == "own"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tokenizer.json": "{}"}, r"tokenizer\.json: not a tokenizer"),
        ({"tokenizer.json": ""}, r"tokenizer\.json: not a tokenizer"),
        ({"tokenizer_config.json": "{"}, r"tokenizer_config\.json: not valid JSON"),
        ({"tokenizer_config.json": "[]"}, r"tokenizer_config\.json: must hold a JSON object"),
        ({"tokenizer_config.json": '{"added_tokens_decoder": [1]}'}, "added tokens cannot be understood"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused_with_its_path(
    folder: Path, files: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        load(folder, **files)


def test_a_folder_without_a_tokenizer_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"needs tokenizer\.json or tokenizer\.model"):
        load(tmp_path)
    with pytest.raises(InvalidConfig, match="no such tokenizer"):
        load_tokenizer(Source("folder", tmp_path, "x"), tmp_path / "none.model")


def test_a_vocabulary_on_which_the_library_panics_is_refused(folder: Path) -> None:
    vocabulary = json.loads(byte_level_json())
    vocabulary["model"]["continuing_subword_prefix"] = "a" * 5000
    with pytest.raises(InvalidConfig, match="not a tokenizer: the tokenizer library failed"):
        load(folder, **{"tokenizer.json": json.dumps(vocabulary)})
