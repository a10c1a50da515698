"""A small GitHub: as much of its REST API as perfguard asks for, with what it was asked, and faults on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

REPOSITORY = "octo/net"
BOT = {"login": "github-actions[bot]", "type": "Bot"}


@dataclass
class Fault:
    """What answers instead of GitHub, for the first requests that fit."""

    method: str
    path: str
    answer: Callable[[Request], Response]
    times: int = 1
    after: bool = False
    """Whether the request takes effect all the same, as when only the answer is lost."""


@dataclass
class FakeGitHub:
    """One repository on one server."""

    server: HTTPServer
    prefix: str = ""
    page_size: int = 100
    page_ceiling: int = 100
    login: dict[str, str] = field(default_factory=lambda: dict(BOT))
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    artifacts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    zips: dict[int, Callable[[Request], Response]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    next_id: int = 1000

    def __post_init__(self) -> None:
        self.server.expect_request(re.compile(".*")).respond_with_handler(self._answer)

    @property
    def url(self) -> str:
        return self.server.url_for(self.prefix or "/").rstrip("/")

    def add_comment(self, body: str, user: dict[str, str] | None = None) -> int:
        self.next_id += 1
        self.comments[self.next_id] = {"id": self.next_id, "body": body, "user": dict(user or self.login)}
        return self.next_id

    def open_pull(self, number: int, sha: str, *, fork: str | None = None, labels: tuple[str, ...] = ()) -> None:
        head = {"sha": sha, "repo": {"full_name": fork or REPOSITORY}, "ref": "work"}
        self.pulls.append(
            {
                "number": number,
                "state": "open",
                "head": head,
                "base": {"ref": "main", "sha": "b" * 40},
                "labels": [{"name": name} for name in labels],
            }
        )

    def leave(self, run_id: int, name: str, content: bytes, *, announced: int | None = None) -> int:
        self.next_id += 1
        size = len(content) if announced is None else announced
        found = {"id": self.next_id, "name": name, "size_in_bytes": size, "expired": False}
        self.artifacts.setdefault(run_id, []).append(found)
        self.zips[self.next_id] = lambda _: Response(content, mimetype="application/zip")
        return self.next_id

    def fail(self, method: str, path: str, answer: Response | Callable[[Request], Response], **how: Any) -> None:
        self.faults.append(
            Fault(
                method,
                path,
                answer if callable(answer) and not isinstance(answer, Response) else lambda _: answer,
                **how,
            )
        )

    def count(self, method: str) -> int:
        return sum(line.startswith(f"{method} ") for line in self.asked)

    def bodies(self) -> list[str]:
        return [comment["body"] for _, comment in sorted(self.comments.items())]

    def _answer(self, request: Request) -> Response:
        path = request.path.removeprefix(self.prefix)
        self.asked.append(f"{request.method} {path}")
        self.headers.append(dict(request.headers))
        for fault in self.faults:
            if fault.times and fault.method == request.method and re.search(fault.path, path):
                fault.times -= 1
                if fault.after:
                    self._route(request, path)
                return fault.answer(request)
        return self._route(request, path)

    def _route(self, request: Request, path: str) -> Response:
        if not request.path.startswith(self.prefix):
            return refusal(404, "Not Found")
        for method, pattern, handler in _ROUTES:
            if method == request.method and (found := re.fullmatch(pattern, path)):
                return handler(self, request, *found.groups())
        return refusal(404, "Not Found")

    def _page(self, request: Request, items: list[Any], wrap: str | None = None) -> Response:
        size = min(int(request.args.get("per_page", self.page_size)), self.page_ceiling)
        page = int(request.args.get("page", "1"))
        shown = items[(page - 1) * size : page * size]
        answer = as_json({"total_count": len(items), wrap: shown} if wrap else shown)
        if page * size < len(items):
            url = f"{self.url}{request.path.removeprefix(self.prefix)}?per_page={size}&page={page + 1}"
            answer.headers["Link"] = f'<{url}>; rel="next", <{url}>; rel="last"'
        return answer

    def _made(self, data: dict[str, Any]) -> Response:
        sha = hashlib.sha1(json.dumps(data, sort_keys=True).encode(), usedforsecurity=False).hexdigest()
        self.objects[sha] = data
        return as_json({"sha": sha}, 201)


def as_json(data: Any, status: int = 200) -> Response:
    return Response(json.dumps(data), status, mimetype="application/json")


def refusal(status: int, message: str, **headers: str) -> Response:
    answer = as_json({"message": message}, status)
    answer.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return answer


def _list_comments(hub: FakeGitHub, request: Request, _number: str) -> Response:
    return hub._page(request, [comment for _, comment in sorted(hub.comments.items())])


def _create_comment(hub: FakeGitHub, request: Request, _number: str) -> Response:
    body = request.get_json()["body"]
    if len(body) > 65_536:
        return refusal(422, "Body is too long (maximum is 65536 characters)")
    return as_json(hub.comments[hub.add_comment(body)], 201)


def _edit_comment(hub: FakeGitHub, request: Request, number: str) -> Response:
    if int(number) not in hub.comments:
        return refusal(404, "Not Found")
    hub.comments[int(number)]["body"] = request.get_json()["body"]
    return as_json(hub.comments[int(number)])


def _delete_comment(hub: FakeGitHub, _request: Request, number: str) -> Response:
    return Response(status=204) if hub.comments.pop(int(number), None) else refusal(404, "Not Found")


def _list_pulls(hub: FakeGitHub, request: Request) -> Response:
    head, base = request.args.get("head"), request.args.get("base")
    wanted = [
        pull
        for pull in hub.pulls
        if (head is None or head == f"{REPOSITORY.partition('/')[0]}:{pull['head']['ref']}")
        and base in (None, pull["base"]["ref"])
    ]
    return hub._page(request, wanted)


def _create_pull(hub: FakeGitHub, request: Request) -> Response:
    data = request.get_json()
    hub.pulls.append(
        {"number": 70 + len(hub.pulls), "head": {"sha": hub.refs[data["head"]], "ref": data["head"]}, "labels": [],
         "base": {"ref": data["base"], "sha": "b" * 40}, "title": data["title"], "body": data["body"]}
    )  # fmt: skip
    return as_json(hub.pulls[-1], 201)


def _edit_pull(hub: FakeGitHub, request: Request, number: str) -> Response:
    (pull,) = (pull for pull in hub.pulls if pull["number"] == int(number))
    pull.update(request.get_json())
    return as_json(pull)


def _list_artifacts(hub: FakeGitHub, request: Request, run_id: str) -> Response:
    return hub._page(request, hub.artifacts.get(int(run_id), []), "artifacts")


def _zip(hub: FakeGitHub, request: Request, number: str) -> Response:
    return hub.zips[int(number)](request)


def _make(hub: FakeGitHub, request: Request, kind: str) -> Response:
    return hub._made({"kind": kind, **request.get_json()})


def _commit(_hub: FakeGitHub, _request: Request, sha: str) -> Response:
    return as_json({"sha": sha, "tree": {"sha": f"tree-of-{sha}"}})


def _ref(hub: FakeGitHub, _request: Request, branch: str) -> Response:
    found = hub.refs.get(branch)
    return as_json({"object": {"sha": found}}) if found else refusal(404, "Not Found")


def _create_ref(hub: FakeGitHub, request: Request) -> Response:
    data = request.get_json()
    branch = data["ref"].removeprefix("refs/heads/")
    if branch in hub.refs:
        return refusal(422, "Reference already exists")
    hub.refs[branch] = data["sha"]
    return as_json(data, 201)


def _move_ref(hub: FakeGitHub, request: Request, branch: str) -> Response:
    data = request.get_json()
    if branch not in hub.refs:
        return refusal(422, "Reference does not exist")
    if not data.get("force"):
        return refusal(422, "Update is not a fast forward")
    hub.refs[branch] = data["sha"]
    return as_json({"ref": branch})


def _user(hub: FakeGitHub, _request: Request) -> Response:
    if hub.login["type"] == "Bot":
        return refusal(403, "Resource not accessible by integration")
    return as_json(hub.login)


_HOME = f"/repos/{REPOSITORY}"
_ROUTES: list[tuple[str, str, Callable[..., Response]]] = [
    ("GET", rf"{_HOME}/issues/(\d+)/comments", _list_comments),
    ("POST", rf"{_HOME}/issues/(\d+)/comments", _create_comment),
    ("PATCH", rf"{_HOME}/issues/comments/(\d+)", _edit_comment),
    ("DELETE", rf"{_HOME}/issues/comments/(\d+)", _delete_comment),
    ("GET", rf"{_HOME}/pulls", _list_pulls),
    ("POST", rf"{_HOME}/pulls", _create_pull),
    ("PATCH", rf"{_HOME}/pulls/(\d+)", _edit_pull),
    ("GET", rf"{_HOME}/actions/runs/(\d+)/artifacts", _list_artifacts),
    ("GET", rf"{_HOME}/actions/artifacts/(\d+)/zip", _zip),
    ("POST", rf"{_HOME}/git/(blobs|trees|commits)", _make),
    ("GET", rf"{_HOME}/git/commits/(\w+)", _commit),
    ("GET", rf"{_HOME}/git/ref/heads/(.+)", _ref),
    ("POST", rf"{_HOME}/git/refs", _create_ref),
    ("PATCH", rf"{_HOME}/git/refs/heads/(.+)", _move_ref),
    ("GET", "/user", _user),
]


def blob_content(hub: FakeGitHub, sha: str) -> bytes:
    """What a blob holds."""
    return base64.b64decode(hub.objects[sha]["content"])
