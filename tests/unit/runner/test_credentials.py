"""Variables that code of a stranger does not see."""

from __future__ import annotations

import pytest

from perfguard.runner.arms.credentials import VARIABLES, without_password, without_secrets


@pytest.mark.parametrize(
    "name",
    [
        *VARIABLES, "MY_TOKEN", "db_password", "AWS_ACCESS_KEY_ID", "SSH_AUTH_SOCK", "DOCKER_AUTH_CONFIG", "AZURE_PAT",
        "SENTRY_DSN", "SSHPASS", "PERFGUARD_DATABASE", "GITHUB_ENV", "ACTIONS_CACHE_URL",
    ],
)  # fmt: skip
def test_names_of_credentials(name):
    assert without_secrets({name: "x"}) == {}


@pytest.mark.parametrize(
    "url", ["https://me:pw@index.example/simple", "postgresql://:pw@host/db", "postgresql://host/db?password=pw"]
)
def test_urls_with_a_password_whatever_the_variable_is_called(url):
    assert without_secrets({"PIP_INDEX_URL": url, "X": f"a {url}"}) == {}


def test_all_else_is_seen():
    seen = {
        "PATH": "/usr/bin", "GIT_AUTHOR_NAME": "me", "PIP_INDEX_URL": "https://index.example:8080/simple",
        "GITHUB_SHA": "ab", "KEYBOARD": "us", "HOME": "/root",
    }  # fmt: skip
    assert without_secrets(seen) == seen


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://me:pw@example.org/a.git", "https://example.org/a.git"),
        ("https://x-access-token:pw@example.org:8443/a", "https://example.org:8443/a"),
        ("https://me@example.org/a.git", "https://me@example.org/a.git"),
        ("git@example.org:team/a.git", "git@example.org:team/a.git"),
        ("ssh://git@example.org:22/a.git", "ssh://git@example.org:22/a.git"),
        ("https://example.org/a:b@c", "https://example.org/a:b@c"),
    ],
)
def test_a_url_loses_its_password_and_nothing_else(url, kept):
    assert without_password(url) == kept
