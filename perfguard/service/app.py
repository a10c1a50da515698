"""The addresses of `perfguard serve`: a JSON API described by OpenAPI, pages over it, and the way in for runs."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, get, post
from litestar.config.allowed_hosts import AllowedHostsConfig
from litestar.connection import ASGIConnection
from litestar.datastructures import ResponseHeader
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.middleware.rate_limit import RateLimitConfig
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.params import Body, Parameter

from perfguard import __version__
from perfguard.codec import from_builtins
from perfguard.errors import DatabaseError, NothingSelectedError, PerfguardError
from perfguard.fleet.hosts import read_hosts
from perfguard.fleet.shards import read_status
from perfguard.history.access import find_token
from perfguard.history.database import Database
from perfguard.history.recording import add_run_in
from perfguard.history.run_records import storable
from perfguard.records.history import MeasuredRun, Scope
from perfguard.service import pages
from perfguard.service.answers import (
    Change,
    ChangeDetails,
    Comparison,
    LoggedRunAnswer,
    Series,
    SeriesName,
    change_details,
    compare_answer,
    log_answer,
    projects,
    series_answer,
    series_names,
)
from perfguard.service.decimation import MOST_POINTS
from perfguard.service.fleet_answers import FleetAnswer, fleet_answer
from perfguard.service.remembered import Answers, ChangesOfProjects, KnownChanges, Newest

_LARGEST_RUN_BYTES = 16 << 20
_PER_MINUTE = 1_200  # Requests of one address
_LONGEST = 300  # Characters of a name
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

Name = Annotated[str, Parameter(max_length=_LONGEST)]
Project = Annotated[
    str | None, Parameter(query="project", max_length=_LONGEST, description="Default: the project of the server.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server answers."""

    project: str  # Shown where none is asked for
    needs_token: bool = False  # Whether reading needs a token, too
    host_names: tuple[str, ...] = ()  # Names in the `Host` header that are answered; empty for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why there is no answer."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What became of a run."""

    run_id: str
    is_new: bool  # False where it was there already


def host_names_for(address: str) -> tuple[str, ...]:
    """Names under which a server on a loopback address is asked; all where it is open to others.

    A page of the web whose name is made to mean this machine would otherwise read what the server gives.
    """
    try:
        is_loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        is_loopback = address == "localhost"
    return ("localhost", "127.0.0.1", "::1") if is_loopback else ()


class Service:
    """What the handlers share."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database, self.settings = database, settings
        self.newest = Newest(database)
        self.changes = ChangesOfProjects(database, self.newest)
        self.answers = Answers()

    def project(self, given: str | None) -> str:
        """The project that is asked for."""
        return given or self.settings.project

    def remembered(self, key: tuple[Any, ...], project: str, make: Callable[[], Any]) -> bytes:
        """JSON of an answer, computed anew once something was recorded."""
        return self.answers.get((*key, project, self.newest.of(project)), lambda: msgspec.json.encode(make()))

    def details(self, project: str, case: str, machine: str, run: str) -> ChangeDetails:
        """A change with what belongs to it."""
        every = self.changes.of(project).changes
        return change_details(self.database, project, case, machine, run, every)


def create_app(database: Database, settings: Settings) -> Litestar:
    """The application over an open database."""
    service = Service(database, settings)
    return Litestar(
        route_handlers=[*_api(service), *pages.handlers(service), _asset, _health(database)],
        openapi_config=_OPENAPI,
        guards=[_reading_guard(service)],
        middleware=[RateLimitConfig(rate_limit=("minute", _PER_MINUTE), exclude=["/assets"]).middleware],
        allowed_hosts=AllowedHostsConfig(allowed_hosts=list(settings.host_names)) if settings.host_names else None,
        exception_handlers={PerfguardError: _explain},
        before_request=_refuse_nul,
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


def _explain(_: Request[Any, Any, Any], error: PerfguardError) -> Response[Problem]:
    status = 404 if isinstance(error, NothingSelectedError) else 503 if isinstance(error, DatabaseError) else 400
    return Response(Problem(detail=str(error)), status_code=status, headers=_HEADERS, media_type=MediaType.JSON)


async def _refuse_nul(request: Request[Any, Any, Any]) -> Response[Problem] | None:
    """PostgreSQL takes no text with a NUL in it."""
    if b"%00" in request.scope["query_string"] or "\0" in request.url.path:
        return Response(Problem(detail="a name cannot hold NUL"), status_code=400, headers=_HEADERS)
    return None


def _reading_guard(service: Service) -> Any:
    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if not service.settings.needs_token or connection.scope["path"].startswith(("/assets/", "/health")):
            return
        if connection.scope.get("method") == "POST":  # which has a guard of its own
            return
        token = find_token(service.database, _token_text(connection.headers.get("authorization", "")))
        if token is None:
            raise NotAuthorizedException("reading needs a token", headers={"WWW-Authenticate": 'Basic realm="perfguard"'})
        wanted = service.project(connection.query_params.get("project"))
        if token.project not in (None, wanted):
            raise PermissionDeniedException(f"this token is for project {token.project}")

    return guard


def _token_text(header: str) -> str:
    """A token as programs send it, or as a browser asks for it: the password, whatever the name is."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


@get("/assets/{name:str}", include_in_schema=False, sync_to_thread=False)
def _asset(name: str) -> Response[bytes]:
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


def _api(service: Service) -> list[Any]:
    database = service.database

    @get("/api/projects", summary="All projects", sync_to_thread=True)
    def get_projects() -> list[str]:
        return list(projects(database))

    @get("/api/series", summary="All series of a project", sync_to_thread=True)
    def get_series_names(project: Project = None) -> list[SeriesName]:
        return list(series_names(database, service.project(project)))

    @get("/api/points", summary="One series, decimated", sync_to_thread=True, raises=[])
    def get_points(
        case: Name,
        machine: Name = "",
        project: Project = None,
        most: Annotated[int, Parameter(ge=10, le=MOST_POINTS, description="Points at most.")] = MOST_POINTS,
    ) -> Annotated[Response[bytes], Series]:
        wanted = service.project(project)

        def make() -> Series:
            return series_answer(database, wanted, case, machine, most=most)

        content = service.remembered(("points", case, machine, most), wanted, make)
        return Response(content, media_type=MediaType.JSON)

    @get("/api/changes", summary="Changes of level of all series, the newest first", sync_to_thread=True)
    def get_changes(project: Project = None) -> KnownChanges:
        return service.changes.of(service.project(project))

    @get("/api/change", summary="One change: environment, other machines, commands", sync_to_thread=True)
    def get_change(case: Name, run: Name, machine: Name = "", project: Project = None) -> ChangeDetails:
        return service.details(service.project(project), case, machine, run)

    @get("/api/compare", summary="Two revisions", sync_to_thread=True)
    def get_comparison(before: Name, after: Name, project: Project = None) -> Comparison:
        return compare_answer(database, service.project(project), before, after)

    @get("/api/runs", summary="The newest runs", sync_to_thread=True)
    def get_runs(
        project: Project = None, last: Annotated[int, Parameter(ge=1, le=1000)] = 100
    ) -> list[LoggedRunAnswer]:
        return list(log_answer(database, service.project(project), last=last))

    @get("/api/fleet", summary="Hosts, queue and the newest submissions", sync_to_thread=True)
    def get_fleet() -> FleetAnswer:
        return fleet_answer(read_hosts(database), read_status(database))

    @post("/api/runs", summary="Add a run (with a token for it)", sync_to_thread=True, security=[{"token": []}])
    def post_run(request: Request[Any, Any, Any], data: Annotated[dict[str, Any], Body(title="MeasuredRun")]) -> Added:
        token = find_token(database, _token_text(_bearer(request.headers.get("authorization", ""))))
        if token is None or token.scope is not Scope.INGEST:
            raise NotAuthorizedException("adding runs needs a token for it: perfguard db token add NAME --for ingest")
        run = storable(from_builtins(data, MeasuredRun, source="the run"))
        if token.project not in (None, run.record.project):
            raise PermissionDeniedException(f"this token is for project {token.project}")
        with database.writing() as connection:
            row = add_run_in(database, connection, run)
        return Added(run_id=run.record.run_id, is_new=row is not None)

    reading = [get_projects, get_series_names, get_points, get_changes, get_change, get_comparison, get_runs, get_fleet]
    return [*reading, post_run]


def _bearer(header: str) -> str:
    """A browser sends passwords by itself, also to a page that tricks it; so runs take none."""
    return header if header.lower().startswith("bearer ") else ""
