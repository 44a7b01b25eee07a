"""The mutants of a module: an operator, a comparison, a constant, a condition, a return value or a
keyword argument is another one.

Not mutated: annotations, decorators, options of dataclass fields, texts (also f-strings, whose
positions Python 3.11 gives wrong), what `raise` and `assert` say, log calls, and `strict=` of
`zip`, a check that never fires.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
NUMBER = re.compile(r"(int|float)$|(Float|Int)\d*\[")
EMPTY: Mapping[str, str] = {"list": "[]", "tuple": "()", "dict": "{}"}
DECLARED = {("zip", "strict"), ("field", "compare"), ("field", "repr"), ("field", "init")}
LOGS = ("logger", "logging", "warnings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of a module.

    Attributes:
        path: The module, from the root of the tree.
        line: Where the change is.
        start: First byte that is replaced.
        end: After the last one.
        old: Text of these bytes.
        new: Text in their place.
        reached: First and last line of the statement; (0, 0) if it runs when the module is loaded.
        names: What that statement binds, if it runs when the module is loaded.
    """

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    reached: tuple[int, int]
    names: tuple[str, ...] = ()

    def apply(self, source: bytes) -> bytes:
        """Return the module's source with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path}:{self.line}: {old} → {new}"


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return every mutant of a module, in the order of the source."""
    walk = _Walk(path, source)
    walk.visit(ast.parse(source))
    return sorted(walk.mutants, key=lambda mutant: (mutant.start, mutant.end, mutant.new))


class _Walk(ast.NodeVisitor):
    """Collects the mutants of a syntax tree."""

    def __init__(self, path: str, source: bytes) -> None:
        self.mutants: list[Mutant] = []
        self._path, self._source = path, source
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda] = []
        self._statement: ast.stmt | None = None

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            outer, self._statement = self._statement, node
            super().visit(node)
            self._statement = outer
        else:
            super().visit(node)

    def _skip(self, node: ast.AST) -> None:
        """What is not mutated."""

    visit_JoinedStr = visit_Raise = visit_Assert = visit_Import = visit_ImportFrom = _skip

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._functions.append(node)
        for statement in node.body:
            self.visit(statement)
        self._functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        func = node.func
        if isinstance(func, ast.Attribute) and getattr(func.value, "id", "") in LOGS:
            return
        name = getattr(func, "attr", getattr(func, "id", ""))
        for keyword in node.keywords:
            if (name, keyword.arg) in DECLARED:
                continue
            if keyword.arg is not None and not name[:1].isupper():
                self._drop(node, keyword)
            self.visit(keyword.value)
        self.visit(func)
        for argument in node.args:
            self.visit(argument)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_union = isinstance(node.op, ast.BitOr) and not self._functions
        other = ARITHMETIC.get(type(node.op))
        if other is not None and not is_union:
            self._add(node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        other = ARITHMETIC.get(type(node.op))
        if other is not None:
            self._add(node, ast.AugAssign(node.target, other(), node.value))
        self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            operators = list(node.ops)
            operators[place] = COMPARISONS[type(operator)]()
            self._add(node, ast.Compare(node.left, operators, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add(node, ast.BoolOp(other, node.values))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._add(node, node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        for other in _other_constants(node.value):
            self._add(node, ast.Constant(other))

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        # Names of the type checker only are not there when the program runs.
        if getattr(node.test, "id", "") != "TYPE_CHECKING":
            self._negate(node.test)
            self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        function = self._functions[-1]
        if node.value is None or isinstance(function, ast.Lambda) or function.returns is None:
            return
        returns = ast.unparse(function.returns)
        if returns == "bool":
            self._negate(node.value)
        elif "None" in returns and not _is_none(node.value):
            self._add(node.value, ast.Constant(None))
        elif NUMBER.match(returns) and not isinstance(node.value, ast.Constant):
            self._add(node.value, ast.UnaryOp(ast.USub(), node.value))
        elif (empty := EMPTY.get(returns.partition("[")[0])) and not _is_empty(node.value):
            self._add(node.value, ast.parse(empty, mode="eval").body)
        self.visit(node.value)

    def _negate(self, condition: ast.expr) -> None:
        # A comparison and `not` have mutants that say the same.
        if not isinstance(condition, ast.UnaryOp) and not _is_negated_by_its_operator(condition):
            self._add(condition, ast.UnaryOp(ast.Not(), condition))

    def _drop(self, call: ast.Call, keyword: ast.keyword) -> None:
        """The call without an argument."""
        others = [other for other in call.keywords if other is not keyword]
        self._add(call, ast.Call(call.func, call.args, others), line=keyword.lineno)

    def _add(self, node: ast.expr | ast.stmt, new: ast.AST, *, line: int | None = None) -> None:
        start = self._line_starts[node.lineno - 1] + node.col_offset
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = self._line_starts[node.end_lineno - 1] + node.end_col_offset
        text = ast.unparse(ast.fix_missing_locations(new))
        mutant = Mutant(
            path=self._path,
            line=line or node.lineno,
            start=start,
            end=end,
            old=self._source[start:end].decode(),
            new=text if isinstance(new, ast.stmt) else f"({text})",
            reached=self._reached(),
            names=() if self._functions else _bound(self._statement),
        )
        if mutant not in self.mutants:
            self.mutants.append(mutant)

    def _reached(self) -> tuple[int, int]:
        """Return the lines of the statement, of a compound one those before its body."""
        statement = self._statement
        if statement is None or not self._functions or statement is self._functions[-1]:
            return 0, 0
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if body else statement.end_lineno
        return statement.lineno, max(last or 0, statement.lineno)


def _other_constants(value: object) -> Iterator[int | float]:
    """Yield what a number is mutated to: neighbours of an integer, half and double of a
    float; of a share, not its double but what lies half way to 1.
    """
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
        yield value - 1
    elif isinstance(value, float):
        is_share = 1e-3 < value < 1
        yield value / 2 if value else -1.0
        yield (1 + value) / 2 if is_share or not value else value * 2


def _is_negated_by_its_operator(node: ast.expr) -> bool:
    swapped = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], swapped)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.List | ast.Tuple) and not node.elts


def _bound(statement: ast.stmt | None) -> tuple[str, ...]:
    """Return the names that a statement of a module or a class binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return (statement.name,)
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return tuple(target.id for target in targets if isinstance(target, ast.Name))
