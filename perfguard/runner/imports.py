"""Which files of a tree a benchmark may import, found by reading the sources; nothing of the tree is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfguard.plain_files import read_plain

_BUILTINS = frozenset(("__import__", "compile", "eval", "exec", "open"))
_DYNAMIC = frozenset(
    (
        *("attach", "entry_points", "exec_module", "execv", "find_spec", "import_module", "instantiate"),
        *("iter_modules", "load_module", "locate", "popen", "resolve_name", "run_module", "run_path", "spawnv"),
        *("spec_from_file_location", "system", "walk_packages"),
    )
)
"""Names by which code imports what its text does not say."""
_READING = frozenset(
    (
        *("getlines", "getsource", "glob", "iterdir", "listdir", "open", "read_bytes", "read_text", "rglob", "scandir"),
        *("walk",),
    )
)
"""Names by which code reads files, which may be sources: a language model may train on them."""
_AT_START = ("sitecustomize", "usercustomize")  # Python imports them by itself
_NATIVE = (".so", ".pyd")
_OPAQUE = frozenset(("cffi", "ctypes", "imp", "multiprocessing", "runpy", "subprocess"))
"""Modules by which code runs files that its text does not name as imports."""
_MOST_BYTES = 256 << 10  # Of a file; a parser takes 700 times as much
MOST_BYTES_TOGETHER = 8 << 20  # Of all files that are looked at, which a parser reads in a quarter of a minute


class OpaqueSourceError(Exception):
    """What a file imports cannot be read from its text."""


class ImportReader:
    """Reads what the files below some roots import, each file once and not more than a parser takes in a while."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = roots
        self._left = MOST_BYTES_TOGETHER
        self._found: dict[Path, tuple[str, ...] | OpaqueSourceError] = {}

    def names_in(self, path: Path, root: Path) -> tuple[str, ...]:
        """Modules that a file may import, packages around them included. Raises OpaqueSourceError: nobody can tell."""
        if path not in self._found:
            try:
                content = read_source(path, root)
                self._left -= len(content)
                if self._left < 0:
                    raise OpaqueSourceError("the sources are larger than is read")
                self._found[path] = tuple(_names_in(content, path, root))
            except OpaqueSourceError as error:
                self._found[path] = error
        found = self._found[path]
        if isinstance(found, OpaqueSourceError):
            raise found
        return found


def importable_files(reader: ImportReader, target: str) -> frozenset[str]:
    """Files that a benchmark may import, itself included, by number of the root and path below it: `0:nets/model.py`.

    `target` is `package.module:name` or `path/file.py:name`, the latter below the first root. Imports within functions
    count, whether they run or not, and so do packages around a module.

    Raises:
        OpaqueSourceError: A file imports by other means than `import`, reads files, changes `sys.path`, is native or no
            Python.
    """
    roots = reader.roots
    location, _, name = target.rpartition(":")
    if ":" in location or not name:
        raise OpaqueSourceError(f"{target} is of another tool's suite")
    waiting = list(_files_of(roots, _AT_START))
    waiting += [(0, roots[0] / location)] if location.endswith(".py") else _files_of(roots, _prefixes(location))
    found: set[tuple[int, Path]] = set()
    while waiting:
        root, path = waiting.pop()
        if (root, path) not in found:
            found.add((root, path))
            waiting.extend(_files_of(roots, reader.names_in(path, roots[root])))
    return frozenset(f"{root}:{path.relative_to(roots[root]).as_posix()}" for root, path in found)


def _names_in(content: bytes, path: Path, root: Path) -> Iterator[str]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise OpaqueSourceError(f"{path} cannot be read: {error}") from error
    package = path.relative_to(root).parts[:-1]
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    _require_clear(path, alias.name)
                    yield from _prefixes(alias.name)
            case ast.ImportFrom():
                around = package[: len(package) - node.level + 1] if node.level else ()
                module = ".".join((*around, *([node.module] if node.module else [])))
                _require_clear(path, module)
                yield from _prefixes(module)
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Name(id=name) | ast.alias(name=name) if name in _BUILTINS | _DYNAMIC | _READING:
                raise OpaqueSourceError(f"{path} uses {name}")
            case ast.Attribute(attr=name) if name in _DYNAMIC | _READING:
                raise OpaqueSourceError(f"{path} uses {name}")
            case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
                raise OpaqueSourceError(f"{path} uses sys.path")
            case _:
                pass


def read_source(path: Path, root: Path) -> bytes:
    """A file of a tree that nobody trusts. Raises OpaqueSourceError: it is no plain file, large, or behind a link."""
    content = read_plain(path, _MOST_BYTES)
    way = path.relative_to(root).parents
    if content is None or any((root / folder).is_symlink() for folder in list(way)[:-1]):
        raise OpaqueSourceError(f"{path} is no plain file of the tree")
    return content


def _require_clear(path: Path, module: str) -> None:
    if module.partition(".")[0] in _OPAQUE:
        raise OpaqueSourceError(f"{path} imports {module}")


def _prefixes(name: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = name.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1) if name)


def _files_of(roots: Sequence[Path], names: Iterator[str] | Sequence[str]) -> Iterator[tuple[int, Path]]:
    """Files that a module of the trees may be; none for one that is installed."""
    for name in names:
        *around, last = name.split(".")
        for number, root in enumerate(roots):
            folder = root.joinpath(*around)
            if last == "*":
                if any(path.name.endswith(_NATIVE) for path in folder.glob("*.*")):
                    raise OpaqueSourceError(f"{name} may be native code of the tree")
                inside = (*folder.glob("*.py"), *folder.glob("*/__init__.py"))
                yield from ((number, path) for path in sorted(inside))
                continue
            if any(path.name.endswith(_NATIVE) for path in folder.glob(f"{last}.*")):
                raise OpaqueSourceError(f"{name} may be native code of the tree")
            for path in (folder / f"{last}.py", folder / last / "__init__.py"):
                if path.is_file():
                    yield number, path
