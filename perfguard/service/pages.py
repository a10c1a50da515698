"""The five views as pages: complete without a script, which adds charts, filters and keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from litestar import MediaType, Request, Response, get
from litestar.params import QueryParameter

from perfguard.errors import NothingSelectedError
from perfguard.fleet.hosts import read_hosts
from perfguard.fleet.overview import read_status
from perfguard.records.history import CaseBetweenRevisions
from perfguard.report.escaping import shown
from perfguard.service.answers import ListedChange, compare_answer, log_answer, projects
from perfguard.service.fleet_answers import fleet_answer
from perfguard.service.shared import SEES_ALL, Service, compressed_response
from perfguard.units import format_ago, format_duration, format_effect, format_seconds

if TYPE_CHECKING:
    import jinja2

_LONGEST = 300
_LATEST = 20  # Points below a chart, as text
_MEDIA_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_NOT_OPEN = ("fixed", "noise", "infrastructure", "acknowledged")

Name = Annotated[str, QueryParameter(max_length=_LONGEST)]
OptionalName = Annotated[str | None, QueryParameter(max_length=_LONGEST)]


@cache
def asset(name: str) -> tuple[bytes, str] | None:
    """Content and type of a file that pages load; None where there is none. The reports' style is one of them."""
    suffix = name[name.rfind(".") :]
    if suffix not in _MEDIA_TYPES or "/" in name:
        return None
    rooms = ("perfguard.service", "perfguard.report.html")
    allowed = (files(room).joinpath("assets").joinpath(name) for room in rooms)
    found = next((path for path in allowed if path.is_file()), None)
    return None if found is None else (found.read_bytes(), _MEDIA_TYPES[suffix])


def handlers(service: Service) -> list[Any]:
    """The pages' addresses."""
    pages = _Renderer(service)
    return [*_changes(service, pages), *_cases(service, pages), _compare(service, pages), _fleet(service, pages)]


def _changes(service: Service, pages: _Renderer) -> list[Any]:
    @get("/", include_in_schema=False, sync_to_thread=True)
    def inbox(project: OptionalName = None, show: Name = "open") -> Response[str]:
        found = service.changes_of(service.project(project))
        chosen = [change for change in found.changes if show == "all" or _is_open(change)]
        chosen.sort(key=lambda change: (change.cause != "code", -change.at))
        return pages.page("inbox.html", project, found=found, changes=chosen, show=show)

    @get("/change", include_in_schema=False, sync_to_thread=True)
    def change(case: Name, run: Name, machine: Name = "", project: OptionalName = None) -> Response[str]:
        found = service.details(service.project(project), case, machine, run)
        return pages.page("change.html", project, found=found)

    return [inbox, change]


def _cases(service: Service, pages: _Renderer) -> list[Any]:
    database = service.database

    @get("/cases", include_in_schema=False, sync_to_thread=True)
    def cases(project: OptionalName = None) -> Response[str]:
        wanted = service.project(project)
        runs = log_answer(database, wanted, last=_LATEST)
        return pages.page("cases.html", project, series=service.names(wanted), runs=runs)

    @get("/case", include_in_schema=False, sync_to_thread=True)
    def case_page(
        request: Request[Any, Any, Any], case: Name, machine: Name = "", project: OptionalName = None
    ) -> Response[bytes]:
        wanted = service.project(project)

        def make() -> bytes:
            found = service.series(wanted, case, machine)
            others = [name for name in service.names(wanted) if name.case_id == case and name.machine_id != machine]
            of = found.points
            latest = list(zip(of.at, of.median_s, of.run_id, of.commit, strict=True))[: -_LATEST - 1 : -1]
            return pages.text("case.html", project, series=found, others=others, latest=latest).encode()

        content = service.compressed(("case", case, machine, project is None, SEES_ALL.get()), wanted, make)
        return compressed_response(request, content, MediaType.HTML)

    return [cases, case_page]


def _compare(service: Service, pages: _Renderer) -> Any:
    database = service.database

    @get("/compare", include_in_schema=False, sync_to_thread=True)
    def compare(before: Name = "", after: Name = "", project: OptionalName = None) -> Response[str]:
        wanted = service.project(project)
        found, problem = None, ""
        if before and after:
            try:
                found = compare_answer(database, wanted, before, after)
            except NothingSelectedError as error:
                problem = str(error)
        commits = dict.fromkeys(run.commit for run in log_answer(database, wanted, last=200) if run.commit)
        return pages.page(
            "compare.html", project, before=before, after=after, found=found, problem=problem, commits=list(commits)
        )

    return compare


def _fleet(service: Service, pages: _Renderer) -> Any:
    database = service.database

    @get("/fleet", include_in_schema=False, sync_to_thread=True)
    def fleet(project: OptionalName = None) -> Response[str]:
        found = fleet_answer(read_hosts(database), read_status(database, project=service.project(project)))
        return pages.page("fleet.html", project, found=found)

    return fleet


def error_page(status: int, detail: str) -> str:
    """A page that says why there is no other."""
    return _environment().get_template("error.html").render(status=status, detail=detail)


def _is_open(change: ListedChange) -> bool:
    return change.state not in _NOT_OPEN and change.cause in ("code", "unknown")


class _Renderer:
    """Makes pages of templates."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def text(self, template: str, project: str | None, **values: Any) -> str:
        """A page as text; without a project it is that of the server, and so are its links."""
        wanted = self._service.project(project)
        known = projects(self._service.database) if SEES_ALL.get() else ()
        link = _Links(wanted, is_default=project is None)
        every = known if wanted in known else (wanted, *known)
        return _environment().get_template(template).render(project=wanted, projects=every, link=link, **values)

    def page(self, template: str, project: str | None, **values: Any) -> Response[str]:
        """A page."""
        return Response(self.text(template, project, **values), media_type=MediaType.HTML)


class _Links:
    """Addresses within the project that is shown."""

    def __init__(self, project: str, *, is_default: bool) -> None:
        self._project = {} if is_default else {"project": project}

    def __call__(self, path: str, **query: str | None) -> str:
        chosen = {**self._project, **{name: value for name, value in query.items() if value}}
        return f"{path}?{urlencode(chosen)}" if chosen else path

    def change(self, change: ListedChange) -> str:
        """The page of a change."""
        return self("/change", case=change.case_id, machine=change.machine_id, run=change.run_id)

    def series(self, case_id: str, machine_id: str) -> str:
        """The page of a series."""
        return self("/case", case=case_id, machine=machine_id)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("perfguard.service", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: shown(value) if type(value) is str else value,
    )
    filters: dict[str, Callable[..., str]] = {
        "effect": format_effect,
        "seconds": format_seconds,
        "moment": _moment,
        "ago": format_ago,
        "duration": format_duration,
        "interval": _interval,
        "direction": lambda log_ratio: "slower" if log_ratio > 0 else "faster",
        "verdict": _verdict,
    }
    environment.filters |= filters
    return environment


def _moment(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
    except (OverflowError, OSError, ValueError):
        return "-"


def _interval(found: Any) -> str:
    if found.lower is None or found.upper is None:
        return "-"
    return f"{format_effect(found.lower)} … {format_effect(found.upper)}"


def _verdict(case: CaseBetweenRevisions) -> str:
    """Slower or faster where the interval says so."""
    if case.lower is not None and case.lower > 0:
        return "slower"
    return "faster" if case.upper is not None and case.upper < 0 else "same"
