"""The JSON API: what is read, and the way in for runs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, QueryParameter
from msgspec import Struct

from perfguard.codec import from_builtins
from perfguard.fleet.hosts import read_hosts
from perfguard.fleet.overview import read_status
from perfguard.history.access import find_token
from perfguard.history.recording import add_run_in
from perfguard.history.run_records import storable
from perfguard.records.history import MeasuredRun, TokenScope
from perfguard.service.answers import (
    ChangeDetails,
    LoggedRunAnswer,
    RevisionComparison,
    Series,
    SeriesName,
    compare_answer,
    log_answer,
    projects,
)
from perfguard.service.decimation import MOST_POINTS
from perfguard.service.fleet_answers import FleetAnswer, fleet_answer
from perfguard.service.remembered import KnownChanges
from perfguard.service.shared import Service, compressed_response

_LONGEST = 300  # Characters of a name

Name = Annotated[str, QueryParameter(max_length=_LONGEST)]
Project = Annotated[str | None, QueryParameter(max_length=_LONGEST, description="Default: the project of the server.")]


class Added(Struct, frozen=True, kw_only=True):
    """What became of a run."""

    run_id: str
    is_new: bool  # False where it was there already


def handlers(service: Service) -> list[Any]:
    """The API's addresses."""
    return [*_lists(service), *_details(service), _adding(service)]


def _lists(service: Service) -> list[Any]:
    database = service.database

    @get("/api/projects", summary="All projects", sync_to_thread=True)
    def get_projects() -> list[str]:
        return list(projects(database))

    @get("/api/series", summary="All series of a project", sync_to_thread=True)
    def get_series_names(project: Project = None) -> list[SeriesName]:
        return list(service.names(service.project(project)))

    @get("/api/changes", summary="Changes of level of all series, the newest first", sync_to_thread=True)
    def get_changes(project: Project = None) -> KnownChanges:
        return service.changes_of(service.project(project))

    @get("/api/runs", summary="The newest runs", sync_to_thread=True)
    def get_runs(
        project: Project = None, last: Annotated[int, QueryParameter(ge=1, le=1000)] = 100
    ) -> list[LoggedRunAnswer]:
        return list(log_answer(database, service.project(project), last=last))

    @get("/api/fleet", summary="Hosts; queue and newest submissions of a project", sync_to_thread=True)
    def get_fleet(project: Project = None) -> FleetAnswer:
        return fleet_answer(read_hosts(database), read_status(database, project=service.project(project)))

    return [get_projects, get_series_names, get_changes, get_runs, get_fleet]


def _details(service: Service) -> list[Any]:
    database = service.database

    @get("/api/points", summary="One series, decimated", sync_to_thread=True, raises=[])
    def get_points(
        request: Request[Any, Any, Any],
        case: Name,
        machine: Name = "",
        project: Project = None,
        most: Annotated[int, QueryParameter(ge=10, le=MOST_POINTS, description="Points at most.")] = MOST_POINTS,
    ) -> Annotated[Response[bytes], Series]:
        wanted = service.project(project)
        content = service.compressed(
            ("points", case, machine, most),
            wanted,
            lambda: msgspec.json.encode(service.series(wanted, case, machine, most)),
        )
        return compressed_response(request, content, MediaType.JSON)

    @get("/api/change", summary="One change: environment, other machines, commands", sync_to_thread=True)
    def get_change(case: Name, run: Name, machine: Name = "", project: Project = None) -> ChangeDetails:
        return service.details(service.project(project), case, machine, run)

    @get("/api/compare", summary="Two revisions", sync_to_thread=True)
    def get_comparison(before: Name, after: Name, project: Project = None) -> RevisionComparison:
        return compare_answer(database, service.project(project), before, after)

    return [get_points, get_change, get_comparison]


def _adding(service: Service) -> Any:
    database = service.database

    def require_token(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        """Before the body is read."""
        given = bearer_of(connection.headers.get("authorization", ""))
        token, add = find_token(database, given), "`perfguard db token add NAME --for ingest` makes one that adds runs"
        if token is None:
            known = "this server knows no such token, or it is revoked" if given else "adding runs needs a token"
            raise NotAuthorizedException(f"{known}; {add}")
        if token.scope is not TokenScope.INGEST:
            raise NotAuthorizedException(f"this token is for reading; {add}")
        connection.state.project = token.project

    @post(
        "/api/runs",
        summary="Add a run (with a token for it)",
        sync_to_thread=True,
        security=[{"token": []}],
        guards=[require_token],
    )
    def post_run(request: Request[Any, Any, Any], data: Annotated[dict[str, Any], Body(title="MeasuredRun")]) -> Added:
        run = storable(from_builtins(data, MeasuredRun, source="the run"))
        if request.state.project not in (None, run.record.project):
            raise PermissionDeniedException(
                f"this token is for project {request.state.project}, and the run is of {run.record.project}"
            )
        with database.writing() as connection:
            row = add_run_in(database, connection, run)
        return Added(run_id=run.record.run_id, is_new=row is not None)

    return post_run


def bearer_of(header: str) -> str:
    """The token that a program sends; empty without one.

    A browser sends passwords by itself, also to a page that tricks it, so runs take none.
    """
    scheme, _, value = header.partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""
