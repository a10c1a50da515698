"""The addresses of `perfguard serve`: a JSON API described by OpenAPI, pages over it, and the way in for runs."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from litestar import Litestar, MediaType, Request, Response, get
from litestar.connection import ASGIConnection
from litestar.datastructures import ResponseHeader, State
from litestar.exceptions import HTTPException, NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.middleware.rate_limit import RateLimitConfig
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.params import PathParameter
from litestar.response import Redirect
from msgspec import Struct

from perfguard import __version__
from perfguard.errors import DatabaseError, NothingSelectedError, PerfguardError
from perfguard.history.access import find_token
from perfguard.history.database import Database
from perfguard.records.history import TokenScope
from perfguard.service import api, pages
from perfguard.service.answers import projects
from perfguard.service.shared import SEES_ALL, Service, Settings
from perfguard.units import printable

_LARGEST_RUN_BYTES = 16 << 20
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


_OF_ALL_PROJECTS = ("/api/projects",)
"""What a token of one project does not give."""


class Refusal(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    detail: str


def host_names_for(address: str) -> tuple[str, ...]:
    """Names under which a server on a loopback address is asked; all where it is open to others.

    A page of the web whose name is made to mean this machine would otherwise read what the server gives.
    """
    try:
        is_loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        is_loopback = address == "localhost"
    return ("localhost", "127.0.0.1", "::1") if is_loopback else ()


def create_app(database: Database, settings: Settings) -> Litestar:
    """The application over an open database."""
    service = Service(database, settings)
    return Litestar(
        route_handlers=[*api.handlers(service), *pages.handlers(service), _asset, _health(database)],
        openapi_config=_OPENAPI,
        guards=[_reading_guard(service)],
        middleware=[RateLimitConfig(rate_limit=("minute", settings.per_minute), exclude=["/assets"]).middleware],
        exception_handlers={
            PerfguardError: _explain,
            HTTPException: _say,
            RecursionError: _nested,
            _Elsewhere: _redirect,
        },
        before_request=_checking(settings),
        on_shutdown=[service.changes.close],
        state=State({"service": service}),
        response_headers=[ResponseHeader(name=name, value=value) for name, value in _HEADERS.items()],
        request_max_body_size=_LARGEST_RUN_BYTES,
        logging_config=None,
        debug=False,
    )


_OPENAPI = OpenAPIConfig(
    title="perfguard",
    version=__version__,
    description="Recorded runs of performance tests. Times are seconds, moments seconds since the epoch.",
    path="/api",
    render_plugins=[JsonRenderPlugin(path="/openapi.json")],
    components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
)


def _explain(request: Request[Any, Any, Any], error: PerfguardError) -> Response[Any]:
    if isinstance(error, DatabaseError):  # whoever asks need not know where it is
        print(f"perfguard: {printable(str(error))}", file=sys.stderr)  # noqa: T201 - the server's log
        return _answer(request, 503, "the database does not answer; the server's log says why")
    return _answer(request, 404 if isinstance(error, NothingSelectedError) else 400, str(error))


def _say(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    return _answer(request, error.status_code, error.detail, error.headers or {})


def _nested(request: Request[Any, Any, Any], _: RecursionError) -> Response[Any]:
    return _answer(request, 400, "what was sent is nested too deeply")


def _answer(
    request: Request[Any, Any, Any], status: int, detail: str, headers: Mapping[str, str] = MappingProxyType({})
) -> Response[Any]:
    """An error as a page where a browser asks for one, else as JSON."""
    every = {**_HEADERS, **headers}
    if "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/"):
        return Response(pages.error_page(status, detail), status_code=status, headers=every, media_type=MediaType.HTML)
    return Response(Refusal(detail=detail), status_code=status, headers=every, media_type=MediaType.JSON)


class _Elsewhere(Exception):  # noqa: N818 - no error
    """The request belongs to another address."""


def _redirect(_: Request[Any, Any, Any], elsewhere: _Elsewhere) -> Response[Any]:
    return Redirect(str(elsewhere), status_code=307)


def _checking(settings: Settings) -> Any:
    async def check(request: Request[Any, Any, Any]) -> Response[Any] | None:
        """Refuse what no database takes, and requests that were meant for another host."""
        query = request.scope["query_string"]
        if b"%00" in query or "\0" in request.url.path:
            return _answer(request, 400, "a name cannot hold NUL")
        names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
        if len(names) != len(set(names)):  # who checks one of them must not read another
            return _answer(request, 400, "each parameter is given once")
        if settings.host_names and _host_in(request.headers.get("host", "")) not in settings.host_names:
            return _answer(request, 400, "this server is asked as localhost only; --address opens it to others")
        return None

    return check


def _host_in(header: str) -> str:
    """The name in a `Host` header, without port and brackets."""
    name = header.partition("]")[0].removeprefix("[") if header.startswith("[") else header.partition(":")[0]
    return name.lower()


def _reading_guard(service: Service) -> Any:
    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if not service.settings.needs_token or connection.scope["path"].startswith(("/assets/", "/health")):
            return
        if connection.scope.get("method") == "POST":  # which has a guard of its own
            return
        said = _token_text(connection.headers.get("authorization", ""))
        token = await asyncio.to_thread(find_token, service.database, said)
        if token is None or token.scope is not TokenScope.READ:
            raise NotAuthorizedException(
                "reading needs a token", headers={"WWW-Authenticate": 'Basic realm="perfguard"'}
            )
        if token.project is None:
            return
        SEES_ALL.set(False)
        path, given = connection.scope["path"], connection.query_params.get("project")
        if path in _OF_ALL_PROJECTS or given not in (None, "", token.project):
            raise PermissionDeniedException(f"this token is for project {token.project}")
        if not given:
            kept = {name: value for name, value in connection.query_params.items() if name != "project"}
            raise _Elsewhere(f"{path}?{urlencode({**kept, 'project': token.project})}")

    return guard


def _token_text(header: str) -> str:
    """A token as programs send it, or as a browser asks for it: the password, whatever the name is."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return api.bearer_of(header)


@get("/assets/{name:str}", include_in_schema=False, sync_to_thread=False)
def _asset(name: Annotated[str, PathParameter()]) -> Response[bytes]:
    found = pages.asset(name)
    if found is None:
        return Response(b"", status_code=404)
    content, media_type = found
    return Response(content, media_type=media_type, headers={"Cache-Control": "max-age=3600"})


def _health(database: Database) -> Any:
    @get("/health", summary="Whether the database answers", sync_to_thread=True)
    def health() -> dict[str, str]:
        projects(database)
        return {"perfguard": __version__}

    return health
