"""The few questions and changes that perfguard has for GitHub's REST API.

ghreq (MIT) pages, waits between changes, and repeats requests with growing pauses where GitHub answers 429, a secondary
limit or 5xx. Only this module imports it.
"""

from __future__ import annotations

import base64
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from perfguard import __version__
from perfguard.errors import PerfguardError, StoreError, UsageError
from perfguard.github.artifacts import MOST_ZIP_BYTES

if TYPE_CHECKING:
    import ghreq

DEFAULT_URL = "https://api.github.com"
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_TIMEOUT_S = 60.0
_LONGEST_WAIT_S = 300.0
_CHUNK_BYTES = 1 << 20


class GitHubError(PerfguardError):
    """GitHub could not be asked, or refused."""


class NotPermittedError(GitHubError):
    """The token may not do that: a fork's token, or a job without the permission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A zip that a workflow run left."""

    id: int
    """Number by which it is downloaded."""
    name: str
    """Its name; the run chose it."""
    size_bytes: int
    """Size, as GitHub says."""
    expired: bool
    """Whether it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """An open pull request."""

    number: int
    """Its number."""
    head_sha: str
    """Its newest commit."""
    from_fork: bool
    """Whether it comes from another repository."""
    labels: tuple[str, ...]
    """Its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment on a pull request."""

    id: int
    """Its number."""
    body: str
    """Its Markdown."""
    by_bot: bool
    """Whether an app wrote it; people's comments are never touched."""


class GitHub:
    """One repository."""

    def __init__(self, *, repository: str, token: str | None, url: str = DEFAULT_URL, wait_s: float = 1.0) -> None:
        """Nothing is asked yet.

        Args:
            repository: `owner/name`.
            token: Of the job, or of an app; None asks as anybody.
            url: GITHUB_API_URL of this GitHub.
            wait_s: Pause between changes, and the first between repeated requests; GitHub asks for a second.

        Raises:
            UsageError: The repository is no `owner/name`, or ghreq is missing.
        """
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError(f"{repository!r} is not OWNER/NAME; set GITHUB_REPOSITORY or give --repository")
        try:
            import ghreq
        except ImportError:
            raise UsageError("talking to GitHub needs ghreq: pip install 'perfguard[github]'") from None
        logging.getLogger("ghreq").setLevel(logging.ERROR)
        retries = ghreq.RetryConfig(retries=6, backoff_factor=wait_s, backoff_base=2.0, total_wait=_LONGEST_WAIT_S)
        self._client = ghreq.Client(
            token=token,
            api_url=url,
            user_agent=f"perfguard/{__version__}",
            mutation_delay=wait_s,
            retry_config=retries,
        )
        self._place = f"/repos/{repository}"
        self.repository = repository

    def close(self) -> None:
        """Leave the connection."""
        self._client.__exit__(None, None, None)

    def open_pull_request(self, head_sha: str) -> PullRequest | None:
        """The open pull request whose newest commit this is; None where there is none, or it has moved on.

        `workflow_run` events of forks name no pull request, and an artifact's word is not taken for it.
        """
        query = {"state": "open", "sort": "updated", "direction": "desc", "per_page": 100}
        for pull in self._pages("/pulls", query):
            if pull["head"]["sha"] == head_sha:
                return PullRequest(
                    number=int(pull["number"]),
                    head_sha=head_sha,
                    from_fork=(pull["head"].get("repo") or {}).get("full_name") != self.repository,
                    labels=tuple(str(label["name"]) for label in pull.get("labels", ())),
                )
        return None

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        """What a workflow run left."""
        return tuple(
            Artifact(
                id=int(found["id"]),
                name=str(found["name"]),
                size_bytes=int(found["size_in_bytes"]),
                expired=bool(found["expired"]),
            )
            for found in self._pages(f"/actions/runs/{run_id}/artifacts", {"per_page": 100})
        )

    @contextmanager
    def downloaded(self, artifact: Artifact) -> Iterator[IO[bytes]]:
        """An artifact's zip in a file without a name.

        Raises:
            StoreError: It is larger than an artifact of a gate can be, whatever GitHub said before.
        """
        if artifact.size_bytes > MOST_ZIP_BYTES:
            raise StoreError(f"artifact {artifact.name!r} has {artifact.size_bytes} bytes; no gate leaves so much")
        with tempfile.TemporaryFile() as file, _explained(f"artifact {artifact.name!r}"):
            response = self._client.request(
                "GET", f"{self._place}/actions/artifacts/{artifact.id}/zip", raw=True, stream=True
            )
            with response:
                for chunk in response.iter_content(_CHUNK_BYTES):
                    if file.tell() + len(chunk) > MOST_ZIP_BYTES:
                        raise StoreError(f"artifact {artifact.name!r} is larger than GitHub said; it is refused")
                    file.write(chunk)
            file.seek(0)
            yield file

    def comments(self, number: int) -> tuple[Comment, ...]:
        """All comments on a pull request, oldest first."""
        return tuple(
            Comment(
                id=int(found["id"]),
                body=str(found.get("body") or ""),
                by_bot=(found.get("user") or {}).get("type") == "Bot",
            )
            for found in self._pages(f"/issues/{number}/comments", {"per_page": 100})
        )

    def add_comment(self, number: int, body: str) -> None:
        """Write a new comment."""
        self._change("POST", f"/issues/{number}/comments", {"body": body})

    def change_comment(self, comment: Comment, body: str) -> None:
        """Replace a comment's text."""
        self._change("PATCH", f"/issues/comments/{comment.id}", {"body": body})

    def remove_comment(self, comment: Comment) -> None:
        """Delete a comment."""
        self._change("DELETE", f"/issues/comments/{comment.id}", None)

    def commit(self, *, branch: str, parent: str, message: str, files: Mapping[str, bytes | None]) -> str:
        """Put a commit on a branch, which is made or moved; gives the commit's id.

        Args:
            branch: Name of the branch.
            parent: The commit that it comes after.
            message: Of the commit.
            files: Content by path in the repository; None removes a file.
        """
        entries = [
            {"path": path, "mode": "100644", "type": "blob", "sha": None if content is None else self._blob(content)}
            for path, content in sorted(files.items())
        ]
        base = self._get(f"/git/commits/{parent}")["tree"]["sha"]
        tree = self._change("POST", "/git/trees", {"base_tree": base, "tree": entries})["sha"]
        commit = self._change("POST", "/git/commits", {"message": message, "tree": tree, "parents": [parent]})["sha"]
        if self._exists(f"/git/ref/heads/{branch}"):
            self._change("PATCH", f"/git/refs/heads/{branch}", {"sha": commit, "force": True})
        else:
            self._change("POST", "/git/refs", {"ref": f"refs/heads/{branch}", "sha": commit})
        return str(commit)

    def propose(self, *, branch: str, into: str, title: str, body: str) -> int:
        """Open a pull request for a branch, or rewrite the one that is open; gives its number."""
        owner = self.repository.partition("/")[0]
        query = {"head": f"{owner}:{branch}", "base": into, "state": "open", "per_page": 100}
        for pull in self._pages("/pulls", query):
            self._change("PATCH", f"/pulls/{pull['number']}", {"title": title, "body": body})
            return int(pull["number"])
        made = self._change("POST", "/pulls", {"head": branch, "base": into, "title": title, "body": body})
        return int(made["number"])

    def _blob(self, content: bytes) -> str:
        encoded = base64.b64encode(content).decode("ascii")
        return str(self._change("POST", "/git/blobs", {"content": encoded, "encoding": "base64"})["sha"])

    def _exists(self, path: str) -> bool:
        import ghreq

        try:
            self._client.get(self._place + path)
        except ghreq.PrettyHTTPError as error:
            if error.response is not None and error.response.status_code == 404:
                return False
            raise _refusal(error, path) from error
        return True

    def _get(self, path: str) -> Any:
        with _explained(path):
            return self._client.get(self._place + path)

    def _pages(self, path: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        with _explained(path):
            yield from self._client.paginate(self._place + path, params=query)

    def _change(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        with _explained(path):
            return self._client.request(method, self._place + path, json=body)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn the library's errors into one sentence each."""
    import ghreq
    import requests

    try:
        yield
    except ghreq.PrettyHTTPError as error:
        raise _refusal(error, what) from error
    except requests.RequestException as error:
        raise GitHubError(f"GitHub could not be reached for {what}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise GitHubError(f"GitHub's answer about {what} is not understood: {error!r}") from error


def _refusal(error: ghreq.PrettyHTTPError, what: str) -> GitHubError:
    status = error.response.status_code if error.response is not None else 0
    said = _message(error)
    # GitHub answers 404 where a token may not even know that something is there.
    if status in (401, 403, 404):
        return NotPermittedError(f"GitHub refused {what} with {status}: {said}")
    return GitHubError(f"GitHub answered {status} for {what}: {said}")


def _message(error: ghreq.PrettyHTTPError) -> str:
    try:
        return str(error.response.json()["message"])[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        return "no message"
