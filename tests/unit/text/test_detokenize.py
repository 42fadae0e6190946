from hypothesis import given
from hypothesis import strategies as st

from chairlift.text.detokenize import Detokenizer, last_bytes
from chairlift.text.sentencepiece_model import PieceModel
from chairlift.text.spm import build_spm
from chairlift.text.tokenizer import Tokenizer
from unit.text.vocabularies import byte_level, piece_list

PIECES, SCORES, TYPES = piece_list()
BYTES = Tokenizer(byte_level())
SPM = Tokenizer(build_spm(PieceModel(pieces=PIECES, scores=SCORES, types=TYPES)), bos_id=1, eos_id=2, add_bos=True)
TOKENIZERS = st.sampled_from([BYTES, SPM])
# U+2581 is how a SentencePiece vocabulary writes a space, so it does not come back as itself.
NOT_ASCII = st.characters(codec="utf-8", min_codepoint=0x80, exclude_characters="\u2581")
IDS = st.lists(st.integers(0, len(PIECES) + 2), max_size=30)


def stream(tokenizer: Tokenizer, prompt: list[int], output: list[int], skip_special: bool = True) -> str:
    detokenizer = Detokenizer(tokenizer, last_bytes(tokenizer, prompt, skip_special), skip_special)
    return "".join([detokenizer.push(token) for token in output]) + detokenizer.flush()


@given(TOKENIZERS, IDS, st.booleans())
def test_random_ids_give_the_text_of_the_whole(tokenizer: Tokenizer, ids: list[int], skip: bool) -> None:
    assert stream(tokenizer, [], ids, skip) == tokenizer.decode(ids, skip)


@given(TOKENIZERS, st.text(), st.text(), st.booleans())
def test_the_output_joins_on_to_the_prompt(tokenizer: Tokenizer, prompt: str, output: str, skip: bool) -> None:
    before, after = tokenizer.encode(prompt), tokenizer.encode(output, add_special=False)
    whole = tokenizer.decode(before + after, skip)
    assert tokenizer.decode(before, skip) + stream(tokenizer, before, after, skip) == whole


@given(TOKENIZERS, st.text(NOT_ASCII, min_size=1))
def test_no_broken_character_is_ever_shown(tokenizer: Tokenizer, text: str) -> None:
    detokenizer = Detokenizer(tokenizer, b"")
    pieces = [detokenizer.push(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert all(piece.count("\ufffd") <= text.count("\ufffd") for piece in pieces)


@given(TOKENIZERS, st.text(), st.integers(0, 200))
def test_a_prompt_cut_inside_a_character_is_completed(tokenizer: Tokenizer, text: str, cut: int) -> None:
    ids = tokenizer.encode("é" + text + "😀漢", add_special=False)
    cut %= len(ids)
    head = b"".join(tokenizer.spelling[i] for i in ids[:cut])
    complete = head.decode(errors="ignore")
    shown = stream(tokenizer, ids[:cut], ids[cut:])
    skipped = 1 if tokenizer is SPM and not head else 0
    assert complete + shown == b"".join(tokenizer.spelling[i] for i in ids).decode()[skipped:]


def test_a_character_is_shown_with_its_last_byte() -> None:
    ids = SPM.encode("😀", add_special=False)
    detokenizer = Detokenizer(SPM, b"a")
    assert [detokenizer.push(token) for token in ids] == [" ", "", "", "", "😀"]


def test_an_incomplete_tail_comes_out_at_the_end() -> None:
    detokenizer = Detokenizer(SPM, b"a")
    assert [detokenizer.push(token) for token in SPM.encode("😀", add_special=False)[1:3]] == ["", ""]
    assert detokenizer.flush() == "\ufffd"


def test_the_first_token_keeps_its_space_behind_a_prompt_and_loses_it_alone() -> None:
    ids = SPM.encode("the", add_special=False)
    assert stream(SPM, SPM.encode("a"), ids) == " the"
    assert stream(SPM, [], ids) == stream(SPM, [1], ids) == "the"


def test_only_the_end_of_the_prompt_is_read() -> None:
    class Prompt(list[int]):
        reads = 0

        def __getitem__(self, index: object) -> int:
            raise AssertionError("reads by index")

        def __reversed__(self):  # type: ignore[no-untyped-def]
            for token in super().__reversed__():
                Prompt.reads += 1
                yield token

    last_bytes(BYTES, Prompt(BYTES.encode("fox " * 1000)))
    assert Prompt.reads <= 3
