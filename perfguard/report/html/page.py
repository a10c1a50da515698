"""Pages from templates: one file that holds its style, its script and its data, and may load nothing else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perfguard.report.escaping import island, shown
from perfguard.report.html.charts import Chart, Table
from perfguard.report.html.content import RawFile, RunContent
from perfguard.report.html.sections import run_section
from perfguard.report.html.svg import Element
from perfguard.report.terminal.findings import finding_heading, finding_rows
from perfguard.units import format_bytes

if TYPE_CHECKING:
    import jinja2

MARKER = "<!-- perfguard page 1"
"""How a page that perfguard wrote begins behind its first line; other files are not overwritten."""
_PLAIN_BYTES = 64 * 1024  # A larger file is compressed
_CODE = re.compile("`([^`]+)`")


def render_report(runs: Sequence[RunContent], *, source: str, index: str = "") -> str:
    """One page with everything that is known of the runs; the same content gives the same bytes.

    `source` says what the page was made of, for its second line: no text of others but as an island. `index` is the
    relative address of the page that lists all runs; empty where there is none.
    """
    sections = [run_section(content, number=number) for number, content in enumerate(runs, 1)]
    title = "perfguard: " + (f"{sections[0].mark.word}, {runs[0].run_id}" if len(sections) == 1 else "several runs")
    # Raw data for the script, in the order of the page's buttons.
    data = {"files": [_packed(run.run_id, file) for run in runs for file in run.files]}
    return render_page("report.html", title=title, source=source, data=data, runs=sections, index=index)


class Section(Struct, frozen=True, kw_only=True):
    """A heading with tables and charts."""

    anchor: str
    title: str  # Up to a colon it is also its link's text
    first: Table | None = None  # Above the charts
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


class Opening(Struct, frozen=True, kw_only=True):
    """What stands above the sections."""

    heading: str
    intro: str
    conclusion: str
    note: str = ""  # How to read the page


def render_sections(title: str, source: str, opening: Opening, sections: Sequence[Section]) -> str:
    """A page of sections that holds no raw data; the same content gives the same bytes."""
    return render_page(
        "sections.html", title=title, source=source, data={"files": []}, opening=opening, sections=sections
    )


def render_page(template: str, *, title: str, source: str, data: object, **values: Any) -> str:
    """A page of a template: `source` is for its second line, `data` for the script, `values` for the template."""
    style, script = asset("page.css"), asset("theme.js") + asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    markup = _environment().get_template(template)
    text = markup.render(
        title=title,
        marker=_safe(f"{MARKER} source={source} -->"),
        policy=policy,
        style=_safe(style),
        script=_safe(script),
        data=_safe(island(data)),
        **values,
    )
    return text if text.endswith("\n") else f"{text}\n"


def asset(name: str) -> str:
    """The style or the script of every page."""
    return files("perfguard.report.html").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


def look() -> str:
    """Identity of everything that gives pages their look; another one makes pages be written again."""
    folder = files("perfguard.report.html")
    digest = hashlib.sha256()
    for part in (folder, folder.joinpath("assets"), folder.joinpath("templates")):
        for place in sorted(part.iterdir(), key=lambda place: place.name):
            if place.is_file():
                digest.update(place.read_bytes())
    return digest.hexdigest()[:16]


def _environment() -> jinja2.Environment:
    """Everything is escaped but what is an element or one of the page's own assets."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("perfguard.report.html", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {"size": format_bytes, "words": _words}
    environment.filters |= {"finding_heading": finding_heading, "finding_rows": finding_rows}
    environment.tests |= {"table": lambda value: isinstance(value, Table)}
    return environment


def _finalize(value: Any) -> Any:
    """Foreign text loses its control characters and its excess on its way out; markup stays."""
    return value if hasattr(value, "__html__") or not isinstance(value, str) else shown(value)


def _words(value: str | Element) -> Any:
    """Text whose `code` stands in backticks."""
    import markupsafe

    if isinstance(value, Element):
        return value
    return _safe(_CODE.sub(r"<code>\1</code>", str(markupsafe.escape(shown(value)))))


def _safe(text: str) -> Any:
    import markupsafe

    return markupsafe.Markup(text)  # noqa: S704 - the page's own assets, and JSON whose markup is escaped


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _packed(run_id: str, file: RawFile) -> dict[str, Any]:
    name = f"{run_id}-{file.name}"
    if len(file.content) <= _PLAIN_BYTES:
        try:
            return {"name": name, "text": file.content.decode("utf-8")}
        except UnicodeDecodeError:  # damaged; kept as it is
            pass
    return {"name": name, "gzip": base64.b64encode(gzip.compress(file.content, mtime=0)).decode()}
