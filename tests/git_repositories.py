"""Empty git repositories that know nothing of the user's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfguard.runner.arms import git

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def init_repository(path: Path, monkeypatch: pytest.MonkeyPatch, *, author: str = "Test") -> Path:
    """Make a repository at `path`; no other one is found from there, or above it."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(path.parent))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("HOME", str(path.parent))
    path.mkdir()
    git.run_git(path, "init", "-q", "-b", "main")
    git.run_git(path, "config", "user.name", author)
    git.run_git(path, "config", "user.email", "test@example.org")
    return path
