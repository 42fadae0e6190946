import json
import logging
from pathlib import Path

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import Item
from fakes.word_encoder import encode, word_encoder


def items(path: Path, content: object, **options: int) -> list[Item]:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return list(read(path, load_encoder=word_encoder, **options))


def lengths(found: list[Item]) -> list[tuple[int, int, float]]:
    return [(item.prompt_tokens, item.output_tokens, item.arrival_s) for item in found]


def test_an_azure_trace_counts_from_its_first_request(tmp_path: Path) -> None:
    for last in ("2023-11-16 18:15:50.9951690", "2023-11-16 18:15:50.995169+00:00", "2023-11-16T20:15:50.995169+02:00"):
        found = items(
            tmp_path / "azure.csv",
            f"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n{last},396,109\r\n",
        )
        assert lengths(found) == [(374, 44, 0.0), (396, 109, pytest.approx(4.314579, abs=1e-5))]


def test_burstgpt_failures_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    rows = [
        "5,ChatGPT,472,0,472,Conversation log",
        "45,GPT-4,1087,230,1317,API log",
        "118.5,ChatGPT,417,276,693,API log",
    ]
    with caplog.at_level(logging.WARNING):
        assert lengths(items(tmp_path / "b.csv", "\n".join([header, *rows]))) == [(1087, 230, 0.0), (417, 276, 73.5)]
    assert "left out 1 requests without a prompt or an answer" in caplog.text


def test_mooncake_times_are_milliseconds_and_blocks_are_shared(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [0, 14]},
        {"timestamp": 27482, "input_length": 512, "output_length": 7, "hash_ids": [0]},
    ]
    found = items(tmp_path / "m.jsonl", "\n".join(json.dumps(row) for row in rows))
    assert lengths(found) == [(600, 5, 0.0), (512, 7, pytest.approx(24.482))]
    assert [item.hash_ids for item in found] == [(0, 14), (0,)]


def test_alpaca_prompts_follow_the_contest(tmp_path: Path) -> None:
    records = [
        {"instruction": "Sort these", "input": "b a", "output": "a then b"},
        {"instruction": "Say hello", "input": "", "output": "hello"},
        {"instruction": "Say nothing", "output": ""},
    ]
    found = items(tmp_path / "a.json", records)
    assert [item.prompt for item in found] == ["Sort these:b a", "Say hello"]
    assert lengths(found) == [(3, 3, 0.0), (2, 1, 0.0)]
    assert found[1].tokens == tuple(encode("Say hello"))


def test_sharegpt_takes_the_first_two_turns(tmp_path: Path) -> None:
    turns = [
        {"from": role, "value": said} for role, said in (("human", "who are you"), ("gpt", "a lift"), ("human", "oh"))
    ]
    found = items(tmp_path / "s.json", [{"id": "x", "conversations": turns[:1]}, {"id": "y", "conversations": turns}])
    assert [(item.prompt, item.output_tokens) for item in found] == [("who are you", 2)]


def test_own_prompts_are_lines_of_text(tmp_path: Path) -> None:
    found = items(tmp_path / "mine.txt", "\ufeffone two\n\n[three] {four} five\n")
    assert [(item.prompt, item.prompt_tokens, item.output_tokens) for item in found] == [
        ("one two", 2, 9), ("[three] {four} five", 3, 9),
    ]  # fmt: skip


def test_own_prompts_are_json_lines_with_a_prompt_or_messages(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hello there"}]
    rows = [
        {"prompt": "a b c", "output_tokens": 4, "user": "ann"},
        {"messages": chat, "max_tokens": 6, "arrival_s": 1.5},
        {"prompt": "d", "arrival_s": 2, "messages": None},
    ]
    found = items(tmp_path / "mine.jsonl", "\n".join(json.dumps(row) for row in rows))
    assert lengths(found) == [(3, 4, 0.0), (3, 6, 1.5), (1, 9, 2.0)]
    assert found[1].prompt == tuple(chat)


def test_long_requests_can_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"prompt_tokens": n, "output_tokens": 10} for n in (5, 90, 91, 7)]
    found = items(tmp_path / "w", "\n".join(json.dumps(row) for row in rows), max_length=100, limit=3)
    assert [item.prompt_tokens for item in found] == [5, 90, 7]
    assert "left out 1 requests of more than 100 tokens" in caplog.text


def test_texts_cannot_be_divided(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be made shorter"):
        items(tmp_path / "mine.txt", "one two", divide_lengths=2)


def test_texts_without_a_tokenizer_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("one two")
    with pytest.raises(InvalidConfig, match="only a tokenizer can count"):
        list(read(tmp_path / "mine.txt"))


_RECORD = '{"instruction": "a", "output": "b"}'
_AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.json", f'[{_RECORD}, {{"instruction": 5, "output": "b"}}]', "record 2: instruction must be text, got 5"),
        ("a.json", f'[{_RECORD}, {{"instruction": ]', "record 2: not JSON: Expecting value: line 1"),
        ("a.json", f"[{_RECORD} {_RECORD}]", "record 1: neither a comma nor the end"),
        ("a.json", f"[{_RECORD}", "record 1: neither a comma nor the end"),
        ("a.json", "[1]", "record 1: must be a JSON object"),
        ("s.json", '[{"conversations": []}, {"id": 1}]', "record 2: conversations must be a list of turns"),
        ("s.json", '[{"conversations": "hi"}]', "record 1: conversations must be a list of turns"),
        ("s.json", '[{"conversations": [{}, {"value": "a"}]}]', "record 1: value must be text, got nothing"),
        ("z.csv", f"{_AZURE}2023-11-16 18:15:46,3\n", "line 2: has more or fewer columns"),
        ("z.csv", f"{_AZURE}yesterday,3,4\n", "line 2: TIMESTAMP must be a date and time"),
        ("z.csv", f"{_AZURE}2023-11-16,3,many\n", "line 2: GeneratedTokens must be a whole"),
        (
            "z.csv",
            f"{_AZURE}2023-11-16 10:00:02,3,4\n2023-11-16 10:00:01,3,4\n",
            "line 3: it comes -1 s after the start",
        ),
        ("p.jsonl", '{"prompt": ""}', "line 1: the prompt is empty"),
        ("p.jsonl", '{"messages": ["hi"]}', "line 1: messages must be a list of messages"),
    ],
)
def test_a_malformed_row_is_named_with_a_way_out(tmp_path: Path, name: str, content: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        items(tmp_path / name, content)
    assert str(caught.value).startswith(f"{tmp_path / name}, {complaint}")
    assert str(caught.value).endswith("; correct it or take it out")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ['{"question": "why?"}', "a,b\n1,2\n", "just some words\nand more\n"])
def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path, content: str) -> None:
    with pytest.raises(InvalidConfig, match=r"not a known workload format.*ShareGPT \(conversations\).*\.txt"):
        items(tmp_path / "w", content)


def test_a_list_without_records_has_no_requests(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="there are no requests in it"):
        items(tmp_path / "w", "[ ]")
