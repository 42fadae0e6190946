"""The sites of a file: every fault that its functions could have.

    site = place in the file + text that takes its place + a name

Always: a site's name consists of the file's stem, the class and function, the kind and a count within the function. So
it stays the same when a file moves to another folder or other functions change. Never a site: docstrings, log calls,
assertions, what is raised, f-strings, `__repr__`, annotations and `if TYPE_CHECKING`.
"""

import ast
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath

from mutants.faults import Fault, faults_of, of_return

LOGGERS = ("logger", "log", "_log", "logging", "warnings")
SILENT = ("__repr__", "__str__")


@dataclass(frozen=True, slots=True)
class Site:
    path: str  # from the root on
    line: int
    function: str
    kind: str
    ordinal: int
    start: int  # bytes of the file
    end: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{PurePosixPath(self.path).stem} {self.function} {self.kind} {self.ordinal}"

    def rank(self, seed: int) -> str:
        return sha256(f"{seed} {self.name}".encode()).hexdigest()


def sites_of(path: str, source: str) -> list[Site]:
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.sites


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.sites: list[Site] = []
        self._path, self._source = path, source.encode()
        self._line_starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._within: list[str] = []
        self._returns: list[ast.expr | None] = []  # of the functions that are open
        self._counts: Counter[tuple[str, str]] = Counter()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._open(node.name, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name not in SILENT:
            self._returns.append(node.returns)
            self._open(node.name, node.body)
            self._returns.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        for fault in of_return(node, self._returns[-1]):
            self._add(fault)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        if _is_left_alone(node):
            return
        if self._returns:
            for fault in faults_of(node):
                self._add(fault)
        super().generic_visit(node)

    def _open(self, name: str, body: list[ast.stmt]) -> None:
        self._within.append(name)
        for statement in body:
            self.visit(statement)
        self._within.pop()

    def _add(self, fault: Fault) -> None:
        node, function = fault.node, ".".join(self._within)
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._line_starts[node.lineno - 1] + node.col_offset
        end = self._line_starts[node.end_lineno - 1] + node.end_col_offset
        ordinal = self._counts[function, fault.kind]
        self._counts[function, fault.kind] += 1
        before = " ".join(self._source[start:end].decode().split())
        self.sites.append(Site(self._path, node.lineno, function, fault.kind, ordinal, start, end, before, fault.text))


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return _is_log_call(node.value)
    if isinstance(node, ast.If):
        return ast.unparse(node.test).endswith("TYPE_CHECKING")
    return isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr | ast.pattern)


def _is_log_call(value: ast.expr) -> bool:
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
        return False
    owner = value.func.value
    return ast.unparse(owner).rpartition(".")[2] in LOGGERS
