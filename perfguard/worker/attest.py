"""What this process really runs: interpreter, imported files, installed distributions."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

_FROM_BUNDLE = ("__main__", "perfguard", "pyperf")
"""Names that the worker bundle brings, whatever the tree holds."""

_NOT_SOURCE = frozenset((".perfguard", "site-packages", "dist-packages"))
"""Directories that may lie inside a source tree but hold other things: run folders with the bundles and worktrees of
both arms, and whatever is installed in an environment that lives inside the project."""


def interpreter_facts() -> dict[str, Any]:
    """Identity of the interpreter: executable, prefix, version."""
    return {
        "executable": sys.executable,
        "prefix": str(Path(sys.prefix).resolve()),
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
    }


def imported_files() -> dict[str, str]:
    """Files of the modules that this process has imported, by module."""
    located = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {name: file for name, file in located.items() if isinstance(file, str)}


def attest(
    roots: Sequence[str], foreign_roots: Sequence[str], further: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Which files of the arm's trees were imported, and whether anything came from the other arm's.

    `further` are those that processes of the worker have imported, by module.

    Roots are absolute code trees: the arm's own, and the other arm's. `modules` gives name, path relative to its root
    and SHA-256 of each imported file below `roots`, and of each C++ source beside one; `foreign` the same below
    `foreign_roots`; `shadowed` names that the arm's tree holds but that were imported from elsewhere; `distributions`
    `name==version`, sorted; `torch_file` where torch came from.
    """
    import importlib.metadata  # a third of what a worker without torch imports, and only its first one attests

    files = {name: Path(file).resolve() for name, file in sorted({**further, **imported_files()}.items())}
    own = [Path(root).resolve() for root in roots]
    foreign = [Path(root).resolve() for root in foreign_roots]
    folders = {path.parent for path in files.values() if any(holds(root, path) for root in (*own, *foreign))}
    files.update((str(source), source) for folder in sorted(folders) for source in sorted(folder.glob("*.cpp")))
    named = (each for each in importlib.metadata.distributions() if each.metadata["Name"])
    return {
        "modules": _below(files, own),
        "foreign": [m for m in _below(files, foreign) if not _below({m["name"]: files[m["name"]]}, own)],
        "shadowed": _shadowed(files, own),
        "distributions": sorted({f"{d.metadata['Name'].lower()}=={d.version}" for d in named}),
        "torch_file": getattr(sys.modules.get("torch"), "__file__", None),
    }


def _below(files: dict[str, Path], roots: Sequence[Path]) -> list[dict[str, str]]:
    import hashlib

    found = []
    for name, path in files.items():
        root = next((root for root in roots if holds(root, path)), None)
        if root is not None and path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found.append({"name": name, "path": str(path.relative_to(root)), "sha256": digest})
    return found


def holds(root: Path, path: Path) -> bool:
    """Whether a file is source of a tree; an environment inside the tree is none of it."""
    if root not in path.parents or not _NOT_SOURCE.isdisjoint(path.relative_to(root).parts):
        return False
    prefixes = (Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())
    return not any(root in prefix.parents and prefix in path.parents for prefix in prefixes)


def _shadowed(files: dict[str, Path], roots: Sequence[Path]) -> list[dict[str, str]]:
    """Top-level names that a tree could have given, but that came from somewhere else."""
    return [
        {"name": name, "path": str(path)}
        for name, path in files.items()
        if "." not in name and name not in _FROM_BUNDLE and not any(holds(root, path) for root in roots)
        if any((root / name / "__init__.py").is_file() or (root / f"{name}.py").is_file() for root in roots)
    ]
