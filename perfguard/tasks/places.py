"""Folders of tasks: what users have, and what is made once."""

from __future__ import annotations

import os
from pathlib import Path


def tasks_home() -> Path:
    """Where fetched models and the user's files are: `$PERFGUARD_TASKS`, else below the user's data directory."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.environ.get("PERFGUARD_TASKS") or f"{data}/perfguard/tasks").expanduser().absolute()


def tasks_cache() -> Path:
    """Where exported, compiled and quantized models are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(f"{cache}/perfguard/tasks").expanduser().absolute()
