"""Shapes that lead deep: references, rules and groups one inside of another."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.responses.rules.schemas import schema_of
from chairlift.text.responses.tools.tool import Tool
from chairlift.text.structured.grammar import check, grammar_of, nested
from chairlift.text.structured.schema_depth import check_depth
from chairlift.text.structured.vocabulary import byte_vocabulary

Part = Callable[[Any], Any]
_CHAINS: list[Part] = [
    lambda to: to,
    lambda to: to | {"title": "a"},
    lambda to: {"type": "object", "properties": {"properties": to}, "required": ["properties"]},
    lambda to: {"type": "array", "items": to},
    lambda to: {"prefixItems": [{"type": "null"}, to]},
    lambda to: {"allOf": [to]},
    lambda to: {"anyOf": [{"type": "null"}, to]},
    lambda to: {"oneOf": [to]},
    lambda to: {"additionalProperties": to},
    lambda to: {"patternProperties": {"^a$": to}},
]
_WAYS = ["#/$defs/{}", "#/%24defs/{}", "#a{}"]


def chain(num: int, part: Part = _CHAINS[0], way: str = _WAYS[0], is_circle: bool = False) -> dict[str, Any]:
    to = [{"$ref": way.format(i)} for i in range(num)]
    last = part(to[0]) if is_circle else {"type": "null"}
    parts = [*(part(each) for each in to[1:]), last]
    anchors = [{"$anchor": f"a{i}"} if way == _WAYS[2] else {} for i in range(num)]
    return to[0] | {"$defs": {f"{i}": parts[i] | anchors[i] for i in range(num)}}


@pytest.mark.parametrize(("num", "is_refused"), [(7, False), (8, True)])
def test_rules_that_all_name_one_another_are_refused_beyond_a_number_of_ways(num: int, is_refused: bool) -> None:
    names = [f"r{number}" for number in range(num)]
    pairs = " | ".join(f"{first} {second}" for first in names for second in names)
    shape = Structured.grammar("start: r0\n" + "".join(f"{name}: {pairs} | /[a-z ]/\n" for name in names))
    if not is_refused:
        assert grammar_of(shape)
        return
    with pytest.raises(InvalidRequest, match="rules that name one another meet in 131"):
        grammar_of(shape)


def rules(rule: str, num: int = 600) -> str:
    each = [rule.format(i, i + 1) for i in range(num)]
    return "\n".join([f"start: {rule[0]}0", *each, f'{rule[0]}{num}: "a"'])


def refusal(structured: Structured) -> str:
    with pytest.raises(InvalidRequest) as refused:
        grammar_of(structured)
    return refused.value.message


@pytest.mark.parametrize("part", _CHAINS)
@pytest.mark.parametrize("is_circle", [False, True])
def test_a_long_chain_of_references_is_refused(part: Part, is_circle: bool) -> None:
    said = refusal(Structured.json_schema(chain(300, part, is_circle=is_circle)))
    assert "schemas deep, one inside of another, and 256 are the most; refer to fewer" in said
    grammar_of(Structured.json_schema(chain(60, part, is_circle=is_circle)))


@pytest.mark.parametrize("way", _WAYS)
def test_references_are_followed_however_they_are_written(way: str) -> None:
    assert "and 256 are the most" in refusal(Structured.json_schema(chain(300, way=way)))


@pytest.mark.parametrize("place", ["7", "9" * 5000])
def test_a_reference_to_an_item_that_is_not_there_is_no_failure_here(place: str) -> None:
    schema = {"allOf": [{"type": "string"}], "properties": {"a": {"$ref": f"#/allOf/{place}"}}}
    check_depth(schema)  # what follows it refuses it, in its own words


def test_what_stands_inside_of_each_definition_counts() -> None:
    deep: Part = lambda to: {"items": {"items": {"items": {"items": {"items": to}}}}}  # noqa: E731
    assert "references lead 302 schemas deep" in refusal(Structured.json_schema(chain(51, deep)))


@pytest.mark.parametrize("wrap", [
    lambda schema: Structured.structural_tag({"format": {"type": "json_schema", "json_schema": schema}}),
    lambda schema: Structured.grammar(f"start: %json {json.dumps(schema)}"),
    lambda schema: Structured.grammar(f"start: %lark {{\nstart: %json {json.dumps(schema)}\n}}"),
])  # fmt: skip
def test_schemas_inside_of_other_shapes_are_read(wrap: Callable[[Any], Structured]) -> None:
    assert "references lead 302 schemas deep" in refusal(wrap(chain(301)))


def test_many_definitions_side_by_side_are_taken() -> None:
    same = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/$defs/0"}}}
    defined = {f"{i}": same for i in range(20)} | {f"s{i}": {"type": "string"} for i in range(500)}
    names = {f"p{i}": {"$ref": f"#/$defs/s{i}"} for i in range(500)}
    schema = {"type": "object", "properties": names, "required": [*names], "$defs": defined}
    grammar_of(Structured.json_schema(schema))


def test_constants_that_are_nested_deep_are_refused() -> None:
    said = refusal(Structured.json_schema('{"const":' + "[" * 150 + "]" * 150 + "}"))
    assert "151 objects and lists, one inside of another, are more than 127" in said


@pytest.mark.parametrize(
    "lark",
    [
        rules("r{}: r{}"),
        rules('r{}: "x" r{} "y" // r:'),
        rules('r{}: "//" (r{}|/a"/) "i"i # "'),
        rules("r{}: r{}X") + '\nX: "x"',
        rules("r{}: /a/xr{}"),
        rules("r{}: /\n:/ r{}"),
        rules('r{}[suffix="]:"]: r{}'),
        rules("T{}: T{}"),
        rules('T{}: ~("x" T{})?'),
        rules("r{}: ((((((((((((((((((((r{}))))))))))))))))))))", num=30),
        rules("r{}: r{} | %json {{}}"),
        rules("r{}: r{} | %regex {{\"substring_chars\": \"}}\"}}"),
        f"start: %lark {{\n{rules('r{}: r{}')}\n}}",
        f"%ignore /a/\n{rules('r{}: r{}')}",
        "\n".join(reversed(rules("r{}: r{}").splitlines())),
    ],
)  # fmt: skip
def test_a_long_chain_of_rules_is_refused(lark: str) -> None:
    assert "deep, one inside of another, and 512 are the most; refer to fewer" in refusal(Structured.grammar(lark))


def test_grammars_one_inside_of_another_are_rules_too() -> None:
    lark = "start: " + "%lark {\nstart: " * 600 + '"a"' + "\n}" * 600
    assert "601 deep" in refusal(Structured.grammar(lark))


@pytest.mark.parametrize("gbnf", ["root ::= r0\nr{} ::= r{}", 'root ::= r0\nr{} ::= [#"] "::= (" (r{})'])
def test_a_long_chain_of_rules_in_gbnf_is_refused_before_it_is_translated(gbnf: str) -> None:
    root, rule = gbnf.splitlines()
    source = "\n".join([root, *(rule.format(i, i + 1) for i in range(600)), 'r600 ::= "a"'])
    assert "and 512 are the most" in refusal(Structured.grammar(source))


def test_terminals_in_a_circle_are_refused() -> None:
    assert "the terminal B needs itself" in refusal(Structured.grammar('start: A\nA: B | "a"\nB: "b" A'))


@pytest.mark.parametrize(
    "lark",
    [
        rules("r{}: r{}", num=400),
        "start: " + " ".join(f"r{i}" for i in range(600)) + "\n" + "\n".join(f'r{i}: "{i}"' for i in range(600)),
        'start: WORD\nWORD: /a/\n%ignore WORD',
    ],
)  # fmt: skip
def test_other_grammars_are_taken(lark: str) -> None:
    grammar_of(Structured.grammar(lark))


def test_formats_that_are_nested_deep_are_refused() -> None:
    tag = '{"type":"tag","begin":"<a>","end":"</a>","content":'
    source = '{"format":' + tag * 900 + '{"type":"any_text"}' + "}" * 900 + "}"
    assert "nested more than 200 levels deep" in refusal(Structured.structural_tag(source))


def test_schemas_of_tools_and_of_parts_are_read() -> None:
    schema = chain(200, _CHAINS[2])
    assert schema_of(Tool("a", schema)) == {"type": "object"}
    with pytest.raises(InvalidRequest, match=r"tools\[2\].function.parameters: at /: references lead 400 schemas"):
        schema_of(Tool("a", schema, strict=True, index=2))
    with pytest.raises(InvalidRequest, match="references lead 400 schemas"):
        nested(Structured.json_schema(schema))


@pytest.mark.parametrize(
    "shape",
    [
        lambda many: Structured.regex("[a-z]?" * many),
        lambda many: Structured.json_schema({"type": "string", "pattern": "[a-z]{0,2}" * many}),
        lambda many: Structured.grammar("start: /" + "[a-z]*" * many + "/"),
        lambda many: Structured.grammar('start: "a" rest\nrest: ' + '("a" | "b")? ' * many),
        lambda many: Structured.grammar('start: A\nA: B B "c"\nB: ' + '("a" | "b")? ' * (many // 2)),
    ],
)
def test_parts_that_may_be_left_out_are_bounded_in_a_row(shape: Callable[[int], Structured]) -> None:
    grammar_of(shape(800))
    assert "parts of an expression or rule may be left out or repeated (?, * and {}), and 1000 are the most" in refusal(
        shape(1002)
    )


def test_a_grammar_that_no_answer_could_begin_with_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="an answer could not even begin"):
        check(Structured.grammar("start: " + '("a" | "b")? ' * 1000), byte_vocabulary)
    check(Structured.grammar("start: " + " | ".join(f'"w{i}"' for i in range(3000))), byte_vocabulary)
