"""The changes that `make mutants` tries."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.changes import changes


def texts(source: str) -> list[str]:
    return [change.text for change in changes(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x < 1", ["x < 1 -> x <= 1", "x < 1 -> x >= 1", "x < 1 -> x < 2"]),
        ("x is None", ["x is None -> x is not None"]),
        ("0 < x <= y", ["0 < x <= y -> 0 <= x <= y", "0 < x <= y -> 0 < x < y", "0 < x <= y -> 1 < x <= y"]),
        ("x + y * z", ["x + y * z -> x - y * z", "y * z -> y / z"]),
        ("x **= y", ["x **= y -> x *= y"]),
        ("a and not b", ["a and (not b) -> a or not b", "a and (not b) -> a and b"]),
        ("x = 0.5", ["x = 0.5 -> x = 1.0"]),
        ("f(flag=True)", ["f(flag=True) -> pass", "flag=True -> flag=False"]),
        ("y = np.minimum(x, any(z))", ["np.minimum(x, any(z)) -> np.maximum(x, any(z))", "any(z) -> all(z)"]),
        ("if x:\n    f()", ["if x: -> if not x:", "f() -> pass"]),
        ("y = [x for x in z if x]", ["for x in z if x -> for x in z if not x"]),
        ("for x in y:\n    continue", ["continue -> break"]),
    ],
)
def test_every_operator_changes_one_place(source, expected):
    assert texts(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "x: int | None",
        "'a' + b'c'.hex()",
        "x = f'{a + 1}'",
        "raise ValueError(x + 1)",
        "@dataclass(frozen=True)\nclass A: pass",
        "y = zip(a, b, strict=True)",
        "if TYPE_CHECKING:\n    x = 1",
        "def f():\n    return ''",
        "def f():\n    return f'{x}'",
    ],
)
def test_texts_annotations_and_what_says_nothing_are_left_alone(source):
    assert texts(source) == []


def test_a_change_knows_its_place_and_when_it_runs():
    source = """\
LIMIT = 2


class A:
    size = 3

    def f(self, x=4):
        if x:
            return x
        return -x
"""
    found = {change.name: (change.lines.start, change.is_imported) for change in changes(source)}
    assert found == {
        ": LIMIT = 2 -> LIMIT = 3": (1, True),
        "A: size = 3 -> size = 4": (5, True),
        "A.f: self, x=4 -> self, x=5": (7, True),
        "A.f: if x: -> if not x:": (8, False),
        "A.f: return x -> return None": (9, False),
        "A.f: return -x -> return None": (10, False),
        "A.f: return -x -> return x": (10, False),
    }


def test_changes_of_one_look_are_numbered_and_the_source_stays():
    found = list(changes("f(1)\nf(1)\n"))
    assert [change.text for change in found] == ["f(1) -> pass", "f(1) -> f(2)", "f(1) -> pass #2", "f(1) -> f(2) #2"]
    assert [ast.unparse(change.tree) for change in found] == ["pass\nf(1)", "f(2)\nf(1)", "f(1)\npass", "f(1)\nf(2)"]
