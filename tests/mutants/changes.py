"""The small changes that a mutation run makes to a module, one at a time.

Left alone: strings and f-strings (texts are held by golden files), annotations, decorators, the arguments of `raise`,
and `strict=` of `zip`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.changed_values import replace

_COMPARED = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_CALLED = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any",
    "floor": "ceil", "ceil": "floor", "argmin": "argmax", "argmax": "argmin",
}  # fmt: skip
_UNTOUCHED_FIELDS = {"annotation", "returns", "decorator_list", "type_params"}
_TESTED = (ast.If, ast.IfExp, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Step = tuple[str, "int | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One place of a module, and what would stand there instead."""

    where: str
    """Dotted name of the function or class; empty at the top of the module."""
    text: str
    """`before -> after` of the smallest expression that shows it, numbered where a function has the same one twice."""
    lines: range
    """Of the statement."""
    is_imported: bool
    """Whether it runs when the module is imported."""
    tree: ast.Module
    """The changed module."""

    @property
    def name(self) -> str:
        """Names it in the list of survivors; the same as long as the expression stays."""
        return f"{self.where}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    path: tuple[_Step, ...]
    """Fields that lead from the module to the node."""
    where: str
    statement: ast.stmt
    shown: int
    """How many of the path's fields lead to the expression that is shown."""
    is_imported: bool


def changes(source: str) -> Iterator[Change]:
    """Every change of a module, in its order."""
    tree = ast.parse(source)
    seen: dict[str, int] = {}
    for place in _places(tree):
        node = _at(tree, place.path)
        for replaced in _replacements(node):
            changed = copy.deepcopy(tree)
            _put(changed, place.path, ast.fix_missing_locations(ast.copy_location(replaced, node)))
            shown = place.path[: place.shown]
            text = f"{_short(_at(tree, shown))} -> {_short(_at(changed, shown))}"
            seen[place.where + text] = seen.get(place.where + text, 0) + 1
            count = seen[place.where + text]
            lines = range(place.statement.lineno, (_head_end(place.statement)) + 1)
            yield Change(
                where=place.where,
                text=text if count == 1 else f"{text} #{count}",
                lines=lines,
                is_imported=place.is_imported,
                tree=changed,
            )


def _places(tree: ast.Module) -> Iterator[_Place]:
    open_places = [_Place(path=(), where="", statement=ast.Pass(), shown=0, is_imported=True)]
    while open_places:
        place = open_places.pop()
        if place.path:
            yield place
        node = _at(tree, place.path)
        inside = place
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            inside = replace(place, where=f"{place.where}.{node.name}".lstrip("."))
        found = [(step, child) for step, child in _children(node) if not _is_left(child)]
        open_places.extend(_inside(inside, step, child) for step, child in reversed(found))


def _children(node: ast.AST) -> Iterator[tuple[_Step, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in _UNTOUCHED_FIELDS or (field == "exc" and isinstance(node, ast.Raise)):
            continue
        if isinstance(value, ast.AST):
            yield (field, None), value
        elif isinstance(value, list):
            yield from (((field, index), item) for index, item in enumerate(value) if isinstance(item, ast.AST))


def _is_left(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    return isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom))


def _inside(parent: _Place, step: _Step, node: ast.AST) -> _Place:
    path = (*parent.path, step)
    # A function's body runs later; its defaults don't.
    is_imported = parent.is_imported and not (step[0] == "body" and isinstance(parent.statement, _FUNCTIONS))
    if isinstance(node, ast.stmt):
        return replace(parent, path=path, statement=node, shown=len(path), is_imported=is_imported)
    small = isinstance(node, (ast.Constant, ast.Name, ast.UnaryOp, ast.Attribute))
    return replace(parent, path=path, shown=parent.shown if small else len(path), is_imported=is_imported)


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    for kind, others in _OTHERS.items():
        if isinstance(node, kind):
            yield from others(node)


def _compared(node: ast.Compare) -> Iterator[ast.AST]:
    for index, operator in enumerate(node.ops):
        # In a chain the opposite of one part says little.
        others = _COMPARED[type(operator)] if len(node.ops) == 1 else _COMPARED[type(operator)][:1]
        for other in others:
            yield ast.Compare(node.left, [*node.ops[:index], other(), *node.ops[index + 1 :]], node.comparators)


def _computed(node: ast.BinOp | ast.AugAssign) -> Iterator[ast.AST]:
    if any(isinstance(part, ast.JoinedStr) or (isinstance(part, ast.Constant) and isinstance(part.value, str))
           for part in ast.walk(node)):  # fmt: skip
        return
    other = _COMPUTED[type(node.op)]()
    yield (
        ast.BinOp(node.left, other, node.right)
        if isinstance(node, ast.BinOp)
        else (ast.AugAssign(node.target, other, node.value))
    )


def _called(node: ast.Call) -> Iterator[ast.AST]:
    function = node.func
    if isinstance(function, ast.Name) and function.id in _CALLED:
        yield ast.Call(ast.Name(_CALLED[function.id], ast.Load()), node.args, node.keywords)
    elif isinstance(function, ast.Attribute) and function.attr in _CALLED:
        yield ast.Call(ast.Attribute(function.value, _CALLED[function.attr], ast.Load()), node.args, node.keywords)


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 2 if value else 1.0)


def _negated(node: ast.AST) -> Iterator[ast.AST]:
    """Conditions that are no comparison, which would be changed anyway."""
    tests = [node.test] if isinstance(node, _TESTED) else node.ifs if isinstance(node, ast.comprehension) else []
    for index, test in enumerate(tests):
        if isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)):
            continue
        other = copy.copy(node)
        denied = ast.UnaryOp(ast.Not(), test)
        if isinstance(node, ast.comprehension):
            other.ifs = [*node.ifs[:index], denied, *node.ifs[index + 1 :]]
        else:
            other.test = denied
        yield other


def _returned(node: ast.Return) -> Iterator[ast.AST]:
    # None for what is no more true than None says nothing, and texts are left alone.
    is_text = isinstance(node.value, ast.JoinedStr)
    is_false = isinstance(node.value, ast.Constant) and (isinstance(node.value.value, str) or not node.value.value)
    if node.value and not is_text and not is_false:
        yield ast.Return(ast.Constant(None))


def _left_out(node: ast.Expr) -> Iterator[ast.AST]:
    if isinstance(node.value, ast.Call):
        yield ast.Pass()


_OTHERS: dict[type[ast.AST] | tuple[type[ast.AST], ...], Callable[[Any], Iterator[ast.AST]]] = {
    ast.Compare: _compared,
    (ast.BinOp, ast.AugAssign): _computed,
    ast.BoolOp: lambda node: iter([ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)]),
    ast.UnaryOp: lambda node: iter([node.operand]),
    ast.Constant: _constants,
    ast.Call: _called,
    ast.Return: _returned,
    ast.Continue: lambda _: iter([ast.Break()]),
    ast.Break: lambda _: iter([ast.Continue()]),
    ast.Expr: _left_out,
    (*_TESTED, ast.comprehension): _negated,
}


def _at(tree: ast.AST, path: tuple[_Step, ...]) -> ast.AST:
    node = tree
    for field, index in path:
        value = getattr(node, field)
        node = value if index is None else value[index]
    return node


def _put(tree: ast.AST, path: tuple[_Step, ...], node: ast.AST) -> None:
    parent, (field, index) = _at(tree, path[:-1]), path[-1]
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _short(node: ast.AST) -> str:
    return ast.unparse(node).strip().splitlines()[0]


def _head_end(statement: ast.stmt) -> int:
    """Last line of a statement without the statements inside it."""
    body = getattr(statement, "body", None)
    return max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno
