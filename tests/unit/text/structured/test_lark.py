"""What is written in Lark means the text that it was given."""

import re
import time

import pytest
from llguidance import LLMatcher

from chairlift.text.structured.lark import escaped, expression, lark_of, literal
from chairlift.text.structured.vocabulary import byte_vocabulary

SIGNS = "".join(map(chr, range(256))) + "\u2028é\U0001f600 // \\n %json { <[5]> \r\n"


@pytest.mark.parametrize("written", [literal(SIGNS), expression(escaped(SIGNS))], ids=["literal", "expression"])
def test_every_sign_stands_for_itself(written: str) -> None:
    matcher = LLMatcher(byte_vocabulary(), LLMatcher.grammar_from_lark(f"start: {written}"), log_level=0)
    tokens = byte_vocabulary().tokenize_bytes(SIGNS.encode())
    assert matcher.try_consume_tokens(tokens) == len(tokens), matcher.get_error()
    assert matcher.is_accepting()


def test_escaping_takes_the_time_of_one_pass() -> None:
    text = "plain words. " * 10_000
    times = []
    for escape in (re.escape, escaped):
        began = time.thread_time()
        escape(text)
        times.append(time.thread_time() - began)
    assert times[1] < 10 * times[0]  # half as long; sign by sign it takes seventy times as long


def test_telling_gbnf_takes_the_time_of_one_pass_over_any_text() -> None:
    texts = [sign * 16_384 for sign in ("\n", "\r\n", " \n", "a\n", "a \n", "a", " ", "-")] + ["a" + "\n" * 16_384]
    times = []
    for look in (re.escape, lark_of):
        began = time.thread_time()
        for text in texts:
            look(text)
        times.append(time.thread_time() - began)
    assert times[1] < 50 * times[0]  # a tenth; a thousand times as long where each line break is a place to begin


@pytest.mark.parametrize("before", ["", "# a comment\n", "\n\n \t", "\r\n", "\r"])
def test_a_rule_of_gbnf_is_found_behind_blanks(before: str) -> None:
    assert lark_of(f'{before}root ::= "a"').strip().startswith(("start:", "//"))
