from chairlift.core.score import TokenScore
from chairlift.server.openai.logprobs import CompletionScores
from chairlift.text.sentencepiece_model import PieceModel
from chairlift.text.spm import build_spm
from chairlift.text.tokenizer import Tokenizer
from unit.text.vocabularies import piece_list


def sentencepiece() -> Tokenizer:
    pieces, scores, types = piece_list()
    return Tokenizer(build_spm(PieceModel(pieces=pieces, scores=scores, types=types)), bos_id=1, eos_id=2, add_bos=True)


def offsets(tokenizer: Tokenizer, tokens: list[int], before: bytes) -> list[int]:
    unscored: list[TokenScore | None] = [None] * len(tokens)
    return CompletionScores(tokenizer, before, skip_special=True).build(tokens, unscored).text_offset


def test_offsets_count_text_without_its_first_space() -> None:
    tokenizer = sentencepiece()
    tokens = tokenizer.encode("the hello in")
    assert tokenizer.decode(tokens) == "the hello in"
    words = [tokenizer.piece(token) for token in tokens]
    found = offsets(tokenizer, tokens, before=b"")
    assert found[:3] == [0, 0, 3] and words[:2] == ["<s>", " the"]
    assert found[-1] == len("the hello in") - len(words[-1])


def test_offsets_of_a_continuation_count_its_first_space() -> None:
    tokenizer = sentencepiece()
    found = offsets(tokenizer, tokenizer.encode("the an", add_special=False), before=b"a")
    assert found[:2] == [0, len(" the")]
