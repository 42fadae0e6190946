"""The kinds of faults: what a node of a syntax tree can be replaced by.

Always: a fault is the text that takes the place of an expression, in parentheses where it needs them. Knows nothing
of files and functions.
"""

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

OFF_BY_ONE, SWAPPED_BRANCH, DROPPED_CALL = "off by one", "swapped branch", "dropped call"
WRONG_BOUND, RETURNED_VALUE = "wrong bound", "returned value"
KINDS = (OFF_BY_ONE, SWAPPED_BRANCH, DROPPED_CALL, WRONG_BOUND, RETURNED_VALUE)

_STRICTNESS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_EXTREMES = {"min": "max", "max": "min"}


class Fault(NamedTuple):
    """What stands in the place of a node."""

    kind: str
    node: ast.expr
    text: str


def faults_of(node: ast.AST) -> Iterator[Fault]:
    """What can be wrong about a node itself, not about what is in it."""
    for node_type, found in _FAULTS.items():
        if isinstance(node, node_type):
            yield from found(node)


def of_return(node: ast.Return, returns: ast.expr | None) -> Iterator[Fault]:
    """By the declared type: the contrary, one more, an empty text, or None."""
    if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
        return
    declared, value = ast.unparse(returns) if returns else "", ast.unparse(node.value)
    instead = {"bool": f"(not ({value}))", "int": f"(({value}) + 1)", "float": f"(({value}) + 1)", "str": "''"}
    text = instead.get(declared, "None")
    if text != value and declared != "None":
        yield Fault(RETURNED_VALUE, node.value, text)


def _constant(node: ast.Constant) -> Iterator[Fault]:
    if type(node.value) is int:
        yield Fault(OFF_BY_ONE, node, f"({node.value - 1})")
        yield Fault(OFF_BY_ONE, node, f"({node.value + 1})")


def _compare(node: ast.Compare) -> Iterator[Fault]:
    for i, operator in enumerate(node.ops):
        if type(operator) in _STRICTNESS:
            node.ops[i] = _STRICTNESS[type(operator)]()
            yield Fault(OFF_BY_ONE, node, f"({ast.unparse(node)})")
            node.ops[i] = operator


def _condition(node: ast.If | ast.IfExp) -> Iterator[Fault]:
    yield _negated(node.test)


def _comprehension(node: ast.comprehension) -> Iterator[Fault]:
    yield from map(_negated, node.ifs)


def _negated(test: ast.expr) -> Fault:
    return Fault(SWAPPED_BRANCH, test, f"(not ({ast.unparse(test)}))")


def _statement(node: ast.Expr) -> Iterator[Fault]:
    call = node.value.value if isinstance(node.value, ast.Await) else node.value
    if isinstance(call, ast.Call):
        yield Fault(DROPPED_CALL, node.value, "None")


def _extreme(node: ast.Call) -> Iterator[Fault]:
    if isinstance(node.func, ast.Name) and node.func.id in _EXTREMES:
        yield Fault(WRONG_BOUND, node.func, _EXTREMES[node.func.id])


def _and_or(node: ast.BoolOp) -> Iterator[Fault]:
    operator = node.op
    node.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
    yield Fault(WRONG_BOUND, node, f"({ast.unparse(node)})")
    node.op = operator


def _sum(node: ast.BinOp) -> Iterator[Fault]:
    operator = node.op
    is_number = not any(_is_sequence(side) for side in (node.left, node.right))
    if isinstance(operator, ast.Add | ast.Sub) and is_number:
        node.op = ast.Sub() if isinstance(operator, ast.Add) else ast.Add()
        yield Fault(WRONG_BOUND, node, f"({ast.unparse(node)})")
        node.op = operator


def _is_sequence(side: ast.expr) -> bool:
    is_text = isinstance(side, ast.Constant) and isinstance(side.value, str | bytes)
    return is_text or isinstance(side, ast.JoinedStr | ast.List | ast.ListComp | ast.Tuple)


_FAULTS: dict[type[ast.AST], Callable[..., Iterator[Fault]]] = {
    ast.Constant: _constant,
    ast.Compare: _compare,
    ast.If: _condition,
    ast.IfExp: _condition,
    ast.comprehension: _comprehension,
    ast.Expr: _statement,
    ast.Call: _extreme,
    ast.BoolOp: _and_or,
    ast.BinOp: _sum,
}
