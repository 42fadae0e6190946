import pytest
from tokenizers import Tokenizer as CoreTokenizer
from tokenizers import decoders, pre_tokenizers, processors
from tokenizers.models import WordLevel

from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.text.sentencepiece_model import PieceModel
from chairlift.text.spm import build_spm
from chairlift.text.tokenizer import Tokenizer
from unit.text.vocabularies import LINES, byte_level, piece_list


def sentencepiece() -> Tokenizer:
    pieces, scores, types = piece_list()
    return Tokenizer(build_spm(PieceModel(pieces=pieces, scores=scores, types=types)), bos_id=1, eos_id=2, add_bos=True)


@pytest.mark.parametrize("text", [*LINES, "", " ", "\n\t 漢", "a<tool>b"])
def test_what_is_encoded_decodes_to_the_same_text(text: str) -> None:
    for tokenizer in (Tokenizer(byte_level()), sentencepiece()):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_begin_token_is_added_only_where_special_tokens_are_wanted() -> None:
    tokenizer = sentencepiece()
    assert tokenizer.encode("the")[0] == 1
    assert tokenizer.encode("the", add_special=False) == tokenizer.encode("the")[1:]


def framed() -> CoreTokenizer:
    core = byte_level()
    core.post_processor = processors.TemplateProcessing("<|a|> $A <|b|>", special_tokens=[("<|a|>", 0), ("<|b|>", 1)])
    return core


def test_the_post_processor_says_what_comes_before_but_nothing_is_put_behind() -> None:
    ids = Tokenizer(framed()).encode("fox")
    assert ids[0] == 0 and 1 not in ids


def test_an_explicit_setting_wins_over_the_post_processor() -> None:
    assert 0 not in Tokenizer(framed(), bos_id=0, add_bos=False).encode("fox")
    assert Tokenizer(byte_level(), bos_id=1, add_bos=True).encode("fox")[0] == 1


def test_special_tokens_are_hidden_unless_asked_for() -> None:
    tokenizer = Tokenizer(byte_level())
    ids = tokenizer.encode("<|a|>fox<tool><|b|>")
    assert tokenizer.decode(ids) == "fox<tool>"
    assert tokenizer.decode(ids, skip_special=False) == "<|a|>fox<tool><|b|>"


def test_the_end_token_is_special_even_where_the_vocabulary_does_not_say_so() -> None:
    tokenizer = Tokenizer(byte_level(), eos_id=50)
    assert 50 in tokenizer.special_ids and 51 not in tokenizer.special_ids


def test_a_piece_keeps_its_space_and_its_bytes() -> None:
    tokenizer = sentencepiece()
    the = tokenizer.encode("the", add_special=False)[0]
    assert (tokenizer.piece(the), tokenizer.spelling[the]) == (" the", b" the")
    half = tokenizer.encode("😀", add_special=False)[1]
    assert (tokenizer.piece(half), tokenizer.spelling[half]) == ("\ufffd", b"\xf0")


def test_an_id_outside_the_vocabulary_has_no_text() -> None:
    tokenizer = Tokenizer(byte_level())
    for token_id in (tokenizer.vocab_size, -1, 1 << 40):
        assert tokenizer.spelling[token_id] == b""
    assert tokenizer.vocab_size == byte_level().get_vocab_size()


def test_limits_in_the_file_do_not_cut_or_pad_a_prompt() -> None:
    core = byte_level()
    core.enable_truncation(3)
    core.enable_padding(length=500)
    assert Tokenizer(core).decode(Tokenizer(core).encode(LINES[0])) == LINES[0]


@pytest.mark.parametrize("releases_gil", [False, True])
def test_half_a_surrogate_pair_is_refused(releases_gil: bool) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        Tokenizer(byte_level()).encode_piece("a\ud83d", True, False, releases_gil)


def test_a_text_has_the_same_tokens_when_others_run_beside_it() -> None:
    tokenizer = Tokenizer(byte_level(), bos_id=0, add_bos=True)
    for text in (*LINES, "", "<|a|>fox"):
        assert tokenizer.encode_piece(text, True, False, releases_gil=True) == tokenizer.encode(text)


def test_words_without_a_decoder_are_joined_by_spaces() -> None:
    core = CoreTokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    assert Tokenizer(core).decode([0, 1]) == core.decode([0, 1]) == "a b"


def test_a_metaspace_decoder_is_understood() -> None:
    core = CoreTokenizer(WordLevel({"\u2581a": 0, "b": 1, "?": 2}, unk_token="?"))
    core.decoder = decoders.Metaspace()
    assert Tokenizer(core).decode([0, 1, 0]) == core.decode([0, 1, 0]) == "ab a"


def test_a_word_piece_decoder_is_understood() -> None:
    core = CoreTokenizer(WordLevel({"ski": 0, "##ing": 1, "lift": 2}, unk_token="ski"))
    core.decoder = decoders.WordPiece(cleanup=False)
    assert Tokenizer(core).decode([0, 1, 2]) == core.decode([0, 1, 2]) == "skiing lift"


@pytest.mark.parametrize("decoder", [decoders.BPEDecoder(), decoders.Strip(" ", 2, 0)])
def test_a_decoder_that_does_not_join_bytes_is_refused_by_name(decoder: decoders.Decoder) -> None:
    core = byte_level()
    core.decoder = decoder
    with pytest.raises(InvalidConfig, match=r"decoder is not supported: \w+"):
        Tokenizer(core)
