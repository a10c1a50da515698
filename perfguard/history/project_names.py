"""What the runs of one repository have in common, wherever it is checked out."""

from __future__ import annotations

import re
from contextlib import suppress

from perfguard.config import LoadedConfig
from perfguard.errors import ArmError
from perfguard.runner.arms.git import path_in_repository, run_git

_REMOTE = re.compile(r"(?:\w[\w+.-]*://[^/]+/|[^/]+@[^/:]+:)(?P<path>.+?)(?:\.git)?/*")


def project_name(loaded: LoadedConfig) -> str:
    """The setting `project`; else `owner/name` of git's remote `origin` and the folder inside; else the folder."""
    if loaded.config.project:
        return loaded.config.project
    with suppress(ArmError):
        remote = run_git(loaded.project, "config", "--get", "remote.origin.url").decode(errors="replace").strip()
        if found := _REMOTE.fullmatch(remote):
            inside = path_in_repository(loaded.project).strip("/")
            return "/".join([*found["path"].split("/")[-2:], *filter(None, [inside])])
    return loaded.project.name
