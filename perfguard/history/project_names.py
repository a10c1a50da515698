"""What the runs of one repository have in common, wherever it is checked out."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from perfguard.config import LoadedConfig
from perfguard.errors import ArmError
from perfguard.runner.arms.git import path_in_repository, run_git

_REMOTE = re.compile(r"(?:\w[\w+.-]*://[^/]+/|[^/]+@[^/:]+:)(?P<path>.+?)(?:\.git)?/*")


def project_name(loaded: LoadedConfig) -> str:
    """The setting `project`; else `owner/name` of git's remote `origin` and the folder inside; else the folder's path.

    A linked worktree has the name of its main one.
    """
    if loaded.config.project:
        return loaded.config.project
    folder = loaded.project
    with suppress(ArmError):
        remote = run_git(folder, "config", "--get", "remote.origin.url").decode(errors="replace").strip()
        if found := _REMOTE.fullmatch(remote):
            inside = path_in_repository(folder).strip("/")
            return "/".join([*found["path"].split("/")[-2:], *filter(None, [inside])])
    with suppress(ArmError):  # git before 2.31 knows no --path-format: a worktree then has a name of its own
        common = Path(run_git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir").decode().strip())
        folder = common.parent / path_in_repository(folder) if common.name == ".git" else folder
    with suppress(ValueError, RuntimeError):
        return f"~/{folder.resolve().relative_to(Path.home().resolve())}"
    return str(folder.resolve())
