import json
from typing import Any

import pytest
from tokenizers import pre_tokenizers
from transformers import GemmaTokenizer

from chairlift.core.errors import InvalidConfig
from chairlift.models.source import Source, embedded_path
from chairlift.text.chat import render
from chairlift.text.find import load_tokenizer
from chairlift.text.gguf_tokenizer import gguf_tokenizer
from chairlift.text.tokenizer import Tokenizer
from unit.text.vocabularies import byte_level, byte_level_json, piece_list


def metadata(pre: str = "gpt-2", **changes: Any) -> dict[str, Any]:
    """What a GGUF file says of the trained vocabulary; a change to None leaves the key out."""
    core = byte_level()
    tokens = [core.id_to_token(i) for i in range(core.get_vocab_size())]
    types = {"<|a|>": 3, "<|b|>": 3, "<tool>": 4}
    plain = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [types.get(token, 1) for token in tokens],
        "merges": [" ".join(merge) for merge in json.loads(byte_level_json())["model"]["merges"]],
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in (plain | changes).items() if value is not None}


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.piece(token) for token in tokenizer.encode(text)]


VOCABULARY = ["<|a|>", "<|b|>", *"0123456789 ", "12", "123", "1234", "12345"]


def digits(pre: str) -> list[str]:
    """How a number is cut; every run of digits in the vocabulary can be merged."""
    tokens = [token.replace(" ", "Ġ") for token in VOCABULARY]
    merges = ["1 2", "12 3", "123 4", "1234 5"]
    types = [3, 3] + [1] * (len(tokens) - 2)
    tokenizer = gguf_tokenizer(metadata(pre, tokens=tokens, merges=merges, token_type=types))
    return [piece for piece in pieces(tokenizer, "12345") if piece != "<|a|>"]


@pytest.mark.parametrize(
    ("pre", "cut"),
    [
        ("gpt-2", ["12345"]),
        ("default", ["12345"]),
        ("smollm", ["1", "2", "3", "4", "5"]),
        ("qwen2", ["1", "2", "3", "4", "5"]),
        ("qwen35", ["1", "2", "3", "4", "5"]),
        ("llama-bpe", ["123", "4", "5"]),
        ("glm4", ["123", "4", "5"]),
        ("gpt-4o", ["123", "4", "5"]),
    ],
)
def test_numbers_are_cut_as_the_pre_tokenizer_says(pre: str, cut: list[str]) -> None:
    assert digits(pre) == cut


@pytest.mark.parametrize(("pre", "cut"), [("glm4", ["aB", "a", "'s"]), ("gpt-4o", ["a", "Ba's"])])
def test_words_are_cut_at_capitals_and_keep_their_endings_as_the_pre_tokenizer_says(pre: str, cut: list[str]) -> None:
    tokens = ["<|a|>", "<|b|>", *"aBs'", "'s", "aB", "Ba", "Ba's"]
    changes = {"tokens": tokens, "merges": ["' s", "a B", "B a", "Ba 's"], "token_type": [3, 3] + [1] * 8}
    assert pieces(gguf_tokenizer(metadata(pre, **changes)), "aBa's") == cut


@pytest.mark.parametrize(("pre", "cut"), [("qwen2", ["\u0915", "\u093f"]), ("qwen35", ["\u0915\u093f"])])
def test_marks_belong_to_words_where_the_pre_tokenizer_says_so(pre: str, cut: list[str]) -> None:
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    letter, mark = (spelled(each)[0][0] for each in "\u0915\u093f")
    tokens = ["<|a|>", "<|b|>", *sorted({*letter, *mark}), letter[:2], letter, mark, letter + mark]  # two bytes alike
    merges = [" ".join(letter[:2]), *(f"{each[:2]} {each[2]}" for each in (letter, mark)), f"{letter} {mark}"]
    changes = {"tokens": tokens, "merges": merges, "token_type": [3, 3] + [1] * (len(tokens) - 2)}
    assert pieces(gguf_tokenizer(metadata(pre, **changes)), "\u0915\u093f") == cut


def test_pieces_of_gemma_4_are_those_of_transformers() -> None:
    words = ["<pad>", "<eos>", "<bos>", "<unk>", "<|channel>", "\n", "\u2581", "a", "b", "ab", "\u2581ab", "\n\n"]
    tokens = words + [f"<0x{byte:02X}>" for byte in range(256)]
    merges = ["a b", "\u2581 ab", "\n \n"]
    types = [3, 3, 3, 3, 4] + [1] * (len(words) - 5) + [6] * 256
    ids = {"bos_token_id": 2, "eos_token_id": 1, "unknown_token_id": 3, "add_bos_token": True}
    ours = gguf_tokenizer(metadata(model="gemma4", tokens=tokens, merges=merges, token_type=types, **ids))
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    theirs = GemmaTokenizer(vocab=vocab, merges=[tuple(merge.split(" ")) for merge in merges])
    theirs.add_tokens(["<|channel>"])
    text = "ab ab\n\n a  b\u00e9<|channel>ab"
    found = ours.encode(text, add_special=False)
    assert found == theirs.encode(text, add_special_tokens=False)
    assert (ours.decode(found), ours.encode("a")[0]) == (text, 2)


def test_control_tokens_are_special_and_user_defined_ones_are_whole_but_shown() -> None:
    tokenizer = gguf_tokenizer(metadata())
    ids = tokenizer.encode("<|a|>x<tool><|b|>")
    assert tokenizer.special_ids == {0, 1}
    assert tokenizer.decode(ids) == "x<tool>" and len(ids) == 4


@pytest.mark.parametrize(
    ("pre", "flag", "is_added"),
    [("gpt-2", None, False), ("gpt-2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_the_begin_token_follows_the_file_and_then_the_kind(pre: str, flag: bool | None, is_added: bool) -> None:
    tokenizer = gguf_tokenizer(metadata(pre, add_bos_token=flag))
    assert (tokenizer.encode("fox")[0] == 0) == is_added


def test_an_end_of_turn_token_is_special() -> None:
    assert 9 in gguf_tokenizer(metadata(eot_token_id=9)).special_ids


def test_a_sentencepiece_vocabulary_adds_its_begin_token_and_its_space() -> None:
    tokens, scores, types = piece_list()
    tokenizer = gguf_tokenizer(
        metadata("default", model="llama", tokens=tokens, scores=scores, token_type=types, bos_token_id=1)
    )
    assert pieces(tokenizer, "the hello") == ["<s>", " the", " ", "hello"]
    assert tokenizer.decode(tokenizer.encode("the hello")) == "the hello"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "bert"}, "'bert' is not supported"),
        ({"pre": "deepseek-llm"}, "'deepseek-llm' is not supported"),
        ({"tokens": None}, "tokens is missing"),
        ({"tokens": [1, 2]}, "not a list of the right type"),
        ({"token_type": [1]}, "1 token types"),
        ({"tokens": ["a", "a"], "token_type": None}, "twice"),
        ({"merges": ["nowhere"]}, "a merge that is not of two tokens"),
        ({"merges": ["zzzz yyyy"]}, "cannot be built"),
        ({"eos_token_id": 10**6}, "outside the vocabulary"),
        ({"model": "llama"}, "unequal"),
    ],
)
def test_a_tokenizer_that_cannot_be_trusted_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        gguf_tokenizer(metadata(**changes))


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    return load_tokenizer(Source("gguf", embedded_path(), "SmolLM2-135M-Instruct", is_embedded=True))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello world", [19556, 905]),
        ("The year 2024, 3.14", [504, 713, 216, 34, 32, 34, 36, 28, 216, 35, 30, 33, 36]),
        ("<|im_start|>user\nHi<|im_end|>", [1, 4093, 198, 26843, 2]),
        ("日本 😀", [23274, 115, 40993, 40303, 218]),
        ("", []),
    ],
)
def test_the_embedded_model_gets_its_known_ids(smollm2: Tokenizer, text: str, ids: list[int]) -> None:
    assert smollm2.encode(text) == ids
    assert smollm2.decode(ids, skip_special=False) == text


def test_the_embedded_model_brings_its_special_tokens_and_chat_template(smollm2: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_id) == (49152, 1, 2)
    assert smollm2.special_ids == frozenset(range(17))
    assert smollm2.controls.disclaim(render(smollm2, [{"role": "user", "content": "Hi"}])) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
