"""Which statements of the arms' trees a change touches, by git's word and Python's own parser."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perfguard.errors import ArmError
from perfguard.records.changed_lines import ChangedLines, ChangedStatement
from perfguard.records.plan import ResolvedArm
from perfguard.runner.arms.attestation import only_texts
from perfguard.runner.arms.git import changed_names, line_changes, top_level
from perfguard.runner.imports import MOST_BYTES_TOGETHER, OpaqueSourceError, read_source

_FILE = re.compile(r"(---|\+\+\+) (?:[ab]/(.*?)|/dev/null)\t?")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MOST_HUNKS = 2000  # A change that touches more places says little by any of them

_Hunk = tuple[int, int, str]  # First line, number of lines, text


def changed_lines(baseline: ResolvedArm, candidate: ResolvedArm, project: Path) -> tuple[ChangedLines, ChangedLines]:
    """What differs between two trees, as the baseline has it and the candidate has it; empty where git cannot say."""
    nothing = ChangedLines()
    if baseline.tree is None or candidate.tree is None or top_level(project) is None:
        return nothing, nothing
    trees = [arm.source_id.partition("+")[0] for arm in (baseline, candidate)]
    is_committed = candidate.spec.revision is not None
    with contextlib.suppress(ArmError):
        directory = project if is_committed else Path(candidate.tree)
        newer = trees[1] if is_committed else None
        text = line_changes(directory, trees[0], newer)
        others = [name for name in changed_names(directory, trees[0], newer) if not name.endswith(".py")]
        is_complete = only_texts(others)
        before, after = _hunks(text)
        if sum(map(len, after.values())) > _MOST_HUNKS:
            return nothing, nothing
        return (
            _statements(Path(baseline.tree), before, is_complete=is_complete),
            _statements(Path(candidate.tree), after, is_complete=is_complete),
        )
    return nothing, nothing


def _hunks(text: str) -> tuple[Mapping[str, list[_Hunk]], Mapping[str, list[_Hunk]]]:
    """Line ranges of both sides by file, with the text of either: what is gone may say more than what is left."""
    sides: tuple[defaultdict[str, list[_Hunk]], ...] = (defaultdict(list), defaultdict(list))
    paths: list[str | None] = [None, None]
    place: list[tuple[int, int]] = []
    lines: tuple[list[str], list[str]] = ([], [])

    def close() -> None:
        for side, (first, count) in enumerate(place):
            if (path := paths[side]) is not None:
                words = "\n".join([*lines[side], *lines[1 - side]])
                # Git names the line behind which something is missing.
                sides[side][path].append((first if count else first + 1, count, words))
        place.clear()
        for said in lines:
            said.clear()

    for line in text.split("\n"):
        if hunk := _HUNK.match(line):
            close()
            numbers = [int(number) if number else 1 for number in hunk.groups()]
            place += [(numbers[0], numbers[1]), (numbers[2], numbers[3])]
        elif place and line.startswith(("-", "+")) and sum(map(len, lines)) < sum(count for _, count in place):
            lines["-+".index(line[0])].append(line[1:])
        elif file := _FILE.fullmatch(line):
            close()
            paths[("---", "+++").index(file[1])] = file[2]
        elif line.startswith("diff "):
            close()
            paths = [None, None]
    close()
    return sides[0], sides[1]


def _statements(tree: Path, hunks: Mapping[str, Sequence[_Hunk]], *, is_complete: bool) -> ChangedLines:
    found, left = list[ChangedStatement](), MOST_BYTES_TOGETHER
    for path in sorted(hunks):
        content = _source(tree, path)
        left -= len(content)
        found += _of_file(content if left >= 0 else b"", path, hunks[path])
    return ChangedLines(statements=tuple(found), is_complete=is_complete)


def _source(tree: Path, path: str) -> bytes:
    """A file of the tree; nothing where its lines cannot be known."""
    with contextlib.suppress(OpaqueSourceError, OSError, ValueError):
        return read_source(tree / path, tree)
    return b""


def _of_file(content: bytes, path: str, hunks: Sequence[_Hunk]) -> Iterator[ChangedStatement]:
    spans: Sequence[tuple[int, int]] = ()
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the arm's code
        spans = sorted(_spans(ast.parse(content)))
    for first, count, text in hunks:
        if not count and any(line.strip() and not line.strip().startswith("#") for line in text.split("\n")):
            yield ChangedStatement(path=path, first=first, last=first, text=text)
        for start, end in spans:
            if count and start < first + count and first <= end:
                yield ChangedStatement(path=path, first=start, last=end, text=text)


def _spans(module: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last line of each statement, docstrings left out; of one with a body, those of its head."""
    for node in ast.walk(module):
        if not isinstance(node, ast.stmt) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        body = getattr(node, "body", None) or getattr(node, "cases", None)
        last = node.end_lineno or node.lineno
        if body:
            inside = getattr(body[0], "lineno", None) or body[0].pattern.lineno
            last = max(node.lineno, inside - 1)
        yield first, last
