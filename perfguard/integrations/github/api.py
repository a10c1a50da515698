"""The few questions and changes that perfguard has for a repository on GitHub."""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from msgspec import Struct

from perfguard.errors import StoreError, UsageError
from perfguard.integrations.github.connection import Connection, NotFoundError, NotPermittedError
from perfguard.store.artifacts import MOST_ZIP_BYTES

DEFAULT_URL = "https://api.github.com"
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.\.?$)[A-Za-z0-9_.-]+")
_CHUNK_BYTES = 1 << 20
_SLACK_BYTES = 1 << 20  # How much larger than announced an artifact may be


class Artifact(Struct, frozen=True, kw_only=True):
    """A zip that a workflow run left, under a name that the run chose; `expired` where it is gone."""

    id: int
    name: str
    size_bytes: int
    expired: bool


class PullRequest(Struct, frozen=True, kw_only=True):
    """An open pull request."""

    number: int
    base_sha: str  # The commit that it would be merged into
    head_sha: str  # Its newest commit
    head_repository: str | None  # `owner/name` that the commit was pushed to; None where that is deleted
    from_fork: bool
    labels: tuple[str, ...]


class Comment(Struct, frozen=True, kw_only=True):
    """A comment on a pull request: its Markdown, who wrote it, and whether that is an app."""

    id: int
    body: str
    author: str
    by_bot: bool


class GitHub(Connection):
    """One repository."""

    def __init__(self, *, repository: str, token: str | None, url: str = DEFAULT_URL, wait_s: float = 1.0) -> None:
        """Nothing is asked yet; UsageError where the repository is no `owner/name`, or ghreq is missing."""
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError(f"{repository!r} is not OWNER/NAME; set GITHUB_REPOSITORY or give --repository")
        super().__init__(token=token, url=url, wait_s=wait_s)
        self._place = f"/repos/{repository}"
        self.repository = repository

    def open_pull_request(self, head_sha: str, head_repository: str | None = None) -> PullRequest | None:
        """The open pull request whose newest commit this is; None where there is none, or it has moved on.

        `workflow_run` events of forks name no pull request, and an artifact's word is not taken for it. The repository
        is the one that the commit was pushed to: somebody else may open a pull request with the same commit.
        """
        query = {"state": "open", "sort": "updated", "direction": "desc"}
        for pull in self.each(f"{self._place}/pulls", query, self._pull_request):
            if pull.head_sha == head_sha and head_repository in (None, pull.head_repository):
                return pull
        return None

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        """What a workflow run left."""
        return tuple(self.each(f"{self._place}/actions/runs/{run_id}/artifacts", {}, _artifact))

    @contextmanager
    def downloaded(self, artifact: Artifact) -> Iterator[IO[bytes]]:
        """An artifact's zip in a nameless file; StoreError where it is larger than a gate's, or than GitHub said."""
        if artifact.size_bytes > MOST_ZIP_BYTES:
            raise StoreError(f"artifact {artifact.name!r} has {artifact.size_bytes} bytes; no gate leaves so much")
        most = artifact.size_bytes + _SLACK_BYTES
        path = f"{self._place}/actions/artifacts/{artifact.id}/zip"
        with tempfile.TemporaryFile() as file:
            for chunk in self.stream(path, f"artifact {artifact.name!r}", _CHUNK_BYTES):
                if file.tell() + len(chunk) > most:
                    raise StoreError(f"artifact {artifact.name!r} is larger than GitHub said; it is refused")
                file.write(chunk)
            file.seek(0)
            yield file

    def comments(self, number: int) -> tuple[Comment, ...]:
        """All comments on a pull request, oldest first."""
        return tuple(self.each(f"{self._place}/issues/{number}/comments", {}, _comment))

    def own_login(self) -> str | None:
        """Who a person's token speaks for; None for the token of a job or an app, which may not ask."""
        try:
            return self.ask("GET", "/user", lambda user: str(user["login"]))
        except NotPermittedError:
            return None

    def add_comment(self, number: int, body: str) -> None:
        """Write a new comment."""
        self._change("POST", f"/issues/{number}/comments", {"body": body})

    def change_comment(self, comment: Comment, body: str) -> None:
        """Replace a comment's text."""
        self._change("PATCH", f"/issues/comments/{comment.id}", {"body": body})

    def remove_comment(self, comment: Comment) -> None:
        """Delete a comment; nothing happens where it is gone."""
        with suppress(NotFoundError):
            self._change("DELETE", f"/issues/comments/{comment.id}")

    def commit(self, *, branch: str, parent: str, message: str, files: Mapping[str, bytes | None]) -> str:
        """Put a commit after `parent` on a branch, which is made or moved; gives the commit's id.

        `files` holds content by path in the repository; None removes a file.
        """
        entries = [
            {"path": path, "mode": "100644", "type": "blob", "sha": None if content is None else self._blob(content)}
            for path, content in sorted(files.items())
        ]
        base = self.ask("GET", f"{self._place}/git/commits/{parent}", lambda found: str(found["tree"]["sha"]))
        tree = self._made("/git/trees", {"base_tree": base, "tree": entries})
        commit = self._made("/git/commits", {"message": message, "tree": tree, "parents": [parent]})
        if self._has_branch(branch):
            self._change("PATCH", f"/git/refs/heads/{branch}", {"sha": commit, "force": True})
        else:
            self._change("POST", "/git/refs", {"ref": f"refs/heads/{branch}", "sha": commit})
        return commit

    def propose(self, *, branch: str, into: str, title: str, body: str) -> int:
        """Open a pull request for a branch, or rewrite the one that is open; gives its number."""
        owner = self.repository.partition("/")[0]
        query = {"head": f"{owner}:{branch}", "base": into, "state": "open"}
        for number in self.each(f"{self._place}/pulls", query, lambda found: int(found["number"])):
            self._change("PATCH", f"/pulls/{number}", {"title": title, "body": body})
            return number
        text = {"head": branch, "base": into, "title": title, "body": body}
        return self.ask("POST", f"{self._place}/pulls", lambda found: int(found["number"]), text)

    def _blob(self, content: bytes) -> str:
        encoded = base64.b64encode(content).decode("ascii")
        return self._made("/git/blobs", {"content": encoded, "encoding": "base64"})

    def _made(self, path: str, body: Mapping[str, Any]) -> str:
        """Make an object of git; gives its id."""
        return self.ask("POST", self._place + path, lambda made: str(made["sha"]), body)

    def _has_branch(self, branch: str) -> bool:
        try:
            return self.ask("GET", f"{self._place}/git/ref/heads/{branch}", lambda _: True)
        except NotFoundError:
            return False

    def _change(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        self.ask(method, self._place + path, lambda _: None, body)

    def _pull_request(self, found: dict[str, Any]) -> PullRequest:
        home = (found["head"].get("repo") or {}).get("full_name")
        return PullRequest(
            number=int(found["number"]),
            base_sha=found["base"]["sha"],
            head_sha=str(found["head"]["sha"]),
            head_repository=home,
            from_fork=home != self.repository,
            labels=tuple(str(label["name"]) for label in found.get("labels", ())),
        )


def _artifact(found: dict[str, Any]) -> Artifact:
    return Artifact(
        id=int(found["id"]),
        name=str(found["name"]),
        size_bytes=int(found["size_in_bytes"]),
        expired=bool(found["expired"]),
    )


def _comment(found: dict[str, Any]) -> Comment:
    author = found.get("user") or {}
    return Comment(
        id=int(found["id"]),
        body=str(found.get("body") or ""),
        author=str(author.get("login") or ""),
        by_bot=author.get("type") == "Bot",
    )
