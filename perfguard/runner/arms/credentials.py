"""Credentials that code of a stranger must not find: in the environment, in git's configuration, in a user's files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

VARIABLES = (
    "GITHUB_TOKEN", "GH_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "CI_JOB_TOKEN", "GITLAB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY",
    "NPM_TOKEN", "NODE_AUTH_TOKEN", "PYPI_TOKEN", "TWINE_PASSWORD", "DOCKER_PASSWORD",
)  # fmt: skip
"""Variables that let whoever reads them act for the job or for its user."""
FILES = (
    ".netrc", ".git-credentials", ".config/git/credentials", ".config/gh/hosts.yml", ".aws/credentials",
    ".azure/accessTokens.json", ".azure/msal_token_cache.json", ".config/gcloud/credentials.db",
    ".config/gcloud/application_default_credentials.json", ".docker/config.json", ".kube/config", ".npmrc", ".pypirc",
    ".cache/huggingface/token", ".ssh/id_rsa", ".ssh/id_ed25519", ".ssh/id_ecdsa",
)  # fmt: skip
"""Files below a home that hold some."""
_SECRET = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|SSHPASS|CREDENTIAL|AUTH(?!OR)|_KEY(_ID)?$|_PAT$|_DSN$|^PERFGUARD_DATABASE$|^ACTIONS_|"
    r"^GITHUB_(?!REPOSITORY$|SHA$|REF)",
    re.IGNORECASE,
)
_USER_AND_PASSWORD = re.compile(r"://[^/\s@:]*:[^/\s@]+@")
_WITH_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]+@|[?&]password=", re.IGNORECASE)
_IN_GIT = re.compile(
    r"^\s*extraheader\s*=\s*\S|^\s*helper\s*=\s*store|://[^/\s:@]+:[^/\s@]+@", re.IGNORECASE | re.MULTILINE
)
_MOST_BYTES = 1 << 20


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that code of a stranger may see: no credentials, URLs with passwords, files of GitHub's runner."""
    return {
        name: value
        for name, value in environment.items()
        if name not in VARIABLES and not _SECRET.search(name) and not _WITH_PASSWORD.search(value)
    }


def without_password(url: str) -> str:
    """A URL without its user and password, where it has a password."""
    return _USER_AND_PASSWORD.sub("://", url)


def variables_found(environment: Mapping[str, str]) -> list[str]:
    """Names of the variables that hold a credential."""
    return [name for name in VARIABLES if environment.get(name)]


def files_found(home: Path, git_folder: Path | None) -> Iterator[str]:
    """Files that hold a credential: a user's, and git's configuration with a token, as some checkouts leave it."""
    yield from (f"~/{name}" for name in FILES if (home / name).is_file())
    config = None if git_folder is None else git_folder / "config"
    if config is not None and config.is_file():
        with config.open(encoding="utf-8", errors="replace") as file:
            if _IN_GIT.search(file.read(_MOST_BYTES)):
                yield str(config)
