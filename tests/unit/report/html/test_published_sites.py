"""`perfguard publish`: what is written, what is left, and what must not be touched."""

from __future__ import annotations

import os
import re
import shutil
import urllib.parse

import pytest
from click.testing import CliRunner

from perfguard.cli.commands.runs import publish_command as command
from perfguard.config import load_config
from perfguard.errors import StoreError, UsageError
from perfguard.history.changes import change_points_of
from perfguard.history.database import opened
from perfguard.history.project_names import project_name
from perfguard.history.recording import add_run
from perfguard.records.history import History
from perfguard.report.html.site import SiteRow, render_index
from perfguard.report.pages import site
from perfguard.report.pages.site import publish
from tests import runs_over_time
from tests.html_reports import a_project
from tests.recorded_histories import COMMITS, a_run


@pytest.fixture
def project(tmp_path):
    return a_project(tmp_path)


def published(project, **options):
    return publish(load_config(project, {}, {}), project / "site", **options)


def files(site):
    return {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}


def test_a_site_has_a_page_for_each_run_and_one_that_lists_them(project):
    done = published(project)
    assert files(project / "site") == {"index.html", ".nojekyll", "runs/paired.html", "runs/rounds.html"}
    assert set(done.written) == files(project / "site")
    index = (project / "site" / "index.html").read_text()
    assert 'href="runs/paired.html"' in index
    assert "▲ regressed" in index


def test_the_first_page_lists_the_changes_of_cases(project):
    loaded = load_config(project, {}, {})
    with opened(loaded.config.database, loaded.project) as database:
        for number in range(20):
            median_s = (0.010 if number < 10 else 0.012) * (1 + 0.002 * (number % 3))
            add_run(database, a_run(number, median_s, project=project_name(loaded)))
    published(project)
    (table,) = re.findall(r'id="changes".*?</section>', (project / "site" / "index.html").read_text(), re.DOTALL)
    rows = re.findall("<tr.*?</tr>", table, re.DOTALL)[1:]
    assert len(rows) == len(a_run(0).cases)
    for row in rows:
        assert re.search(r">\+(19|20)\.\d %<", row)
        assert ">code<" in row
        assert f"{COMMITS[9][:12]} … {COMMITS[10][:12]}" in row
        assert "<a" not in row  # the run has no page


def test_a_change_leads_to_the_page_of_the_run_that_it_came_with():
    changes = change_points_of(runs_over_time.runs((8, 0.010), (8, 0.012)))
    run_id = changes[0].after.run_id
    row = SiteRow(
        run_id=run_id, started_at=0.0, source="-", suite="", machine="", verdict="measured", worst="",
        worst_log_ratio=None,
    )  # fmt: skip
    page = render_index([row], History(), changes, source="test")
    (table,) = re.findall(r'id="changes".*?</section>', page, re.DOTALL)
    assert f'href="runs/{run_id}.html"' in table
    assert (
        "href"
        not in re.findall(r'id="changes".*?</section>', render_index([], History(), changes, source="test"), re.DOTALL)[
            0
        ]
    )


def test_without_changes_there_is_no_table_of_them(project):
    published(project)
    assert 'id="changes"' not in (project / "site" / "index.html").read_text()


def test_what_has_not_changed_is_not_written_again(project):
    published(project)
    before = {path: path.stat().st_mtime_ns for path in (project / "site").rglob("*.html")}
    done = published(project)
    assert (done.written, done.unchanged) == ((), 2)
    assert {path: path.stat().st_mtime_ns for path in (project / "site").rglob("*.html")} == before


def test_a_run_that_has_grown_is_written_again_alone(project):
    published(project)
    events = project / ".perfguard" / "runs" / "rounds" / "events.jsonl"
    events.write_bytes(events.read_bytes() + b'{"event": "unknown"}\n')
    assert [name for name in published(project).written if name.startswith("runs/")] == ["runs/rounds.html"]


def test_pages_of_runs_that_were_removed_stay_and_are_listed(project):
    published(project)
    shutil.rmtree(project / ".perfguard" / "runs" / "paired")
    assert published(project).runs == 2
    assert 'href="runs/paired.html"' in (project / "site" / "index.html").read_text()


def test_a_page_that_was_damaged_is_written_again(project):
    published(project)
    page = project / "site" / "runs" / "paired.html"
    page.write_text(re.sub("row={.*?}", "row={", page.read_text(), count=1))
    assert "runs/paired.html" in published(project).written


@pytest.mark.parametrize("name", ["index.html", "runs/paired.html"])
def test_files_of_somebody_else_are_left_alone_and_nothing_is_written(project, name):
    mine = project / "site" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UsageError, match="was not written by perfguard"):
        published(project)
    assert files(project / "site") == {name}
    assert name in published(project, force=True).written


def test_all_links_are_relative_and_lead_somewhere(project):
    published(project)
    site = project / "site"
    for page in site.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"#][^"]*)"', page.read_text()):
            assert (page.parent / link).resolve().is_relative_to(site.resolve())
            assert (page.parent / link).is_file()


@pytest.mark.parametrize("name", [b"caf\xe9", b'a b"<i>#?%&', b"..x", b"javascript:alert(1)"])
def test_a_run_has_its_page_whatever_its_folder_is_called(project, name):
    runs = project / ".perfguard" / "runs"
    (runs / "paired").rename(runs / os.fsdecode(name))
    published(project)
    index = (project / "site" / "index.html").read_text()
    links = re.findall(r'href="runs/([^"]*)"', index)
    assert {urllib.parse.unquote_to_bytes(link) for link in links} == {name + b".html", b"rounds.html"}
    assert published(project).unchanged == 2


def test_a_project_without_runs_is_told_how_to_make_one(tmp_path):
    with pytest.raises(StoreError, match="perfguard gate"):
        publish(load_config(tmp_path, {}, {}), tmp_path / "site")


def test_the_command_says_what_it_wrote(project, monkeypatch):
    monkeypatch.chdir(project)
    done = CliRunner().invoke(command, ["-o", "pages"])
    assert done.exit_code == 0, done.output
    assert "wrote pages/runs/paired.html" in done.output
    assert "pages/index.html lists 2 runs; 0 unchanged" in done.output


@pytest.fixture
def runs(project):
    return project / ".perfguard" / "runs"


@pytest.mark.parametrize("name", ["fingerprint.json", "plan.json", "result.json", "arms.json", "events.jsonl"])
def test_a_pipe_among_a_runs_files_holds_nothing_up(project, runs, name):
    (runs / "paired" / "result.json").unlink(missing_ok=True)  # so that the run is judged again
    (runs / "paired" / name).unlink(missing_ok=True)
    os.mkfifo(runs / "paired" / name)
    done = published(project)
    assert (done.runs, done.failures) == (2, ())


@pytest.mark.parametrize("name", ["fingerprint.json", "plan.json", "arms.json"])
def test_files_that_are_nested_too_deeply_are_passed_over(project, runs, name):
    (runs / "paired" / "result.json").unlink(missing_ok=True)
    (runs / "paired" / name).write_text("[" * 200_000)
    done = published(project)
    assert (done.runs, done.failures) == (2, ())


def test_a_number_that_is_no_time_leaves_all_pages_and_the_first_one_whole(project, runs):
    events = runs / "paired" / "events.jsonl"
    events.write_text(re.sub(r'"value_s":[0-9.e-]+', '"value_s":1e308', events.read_text()))
    done = published(project)
    assert (done.runs, done.failures) == (2, ())
    assert "index.html" in done.written


@pytest.mark.parametrize("name", ["result.json", "events.jsonl", "profile.json"])
def test_a_link_shows_nothing_of_what_it_leads_to(project, runs, tmp_path, name):
    secret = tmp_path / "secret"
    secret.write_text('{"event": "noted", "text": "between us"}\n')
    (runs / "rounds" / name).unlink(missing_ok=True)
    (runs / "rounds" / name).symlink_to(secret)
    published(project)
    assert all("between us" not in page.read_text() for page in (project / "site").rglob("*.html"))


def test_a_run_that_breaks_a_page_is_named_and_keeps_no_other_from_the_site(project, monkeypatch):
    whole = site.read_run

    def broken(loaded, folder, **options):
        if folder.name == "paired":
            raise AttributeError("something new")
        return whole(loaded, folder, **options)

    monkeypatch.setattr(site, "read_run", broken)
    monkeypatch.chdir(project)
    done = CliRunner().invoke(command, ["-o", "site"])
    assert done.exit_code == 3
    assert "run paired has no page: AttributeError: something new" in done.stderr
    assert files(project / "site") == {"index.html", ".nojekyll", "runs/rounds.html"}


def test_runs_that_cannot_be_read_are_named_by_the_command(project, runs, monkeypatch):
    (runs / "rounds" / "events.jsonl").write_text("")
    monkeypatch.chdir(project)
    done = CliRunner().invoke(command, ["-o", "site"])
    assert done.exit_code == 0
    assert done.stderr.startswith("run rounds: ")


@pytest.mark.parametrize("name", ["index.html", "runs/paired.html"])
def test_a_pipe_in_the_site_is_somebody_elses(project, name):
    place = project / "site" / name
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    with pytest.raises(UsageError, match="was not written by perfguard"):
        published(project)


def test_a_link_in_the_place_of_the_pages_is_refused(project, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (project / "site").mkdir()
    (project / "site" / "runs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link"):
        published(project)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["n" * 250, "ü" * 120])
def test_a_run_with_a_long_name_has_a_page_with_a_shorter_one(project, runs, name):
    (runs / "paired").rename(runs / name)
    done = published(project)
    assert (done.runs, done.failures) == (2, ())
    assert published(project).unchanged == 2


def test_long_texts_leave_a_run_in_the_list(project, runs):
    events = runs / "paired" / "events.jsonl"
    events.write_text(re.sub(r'"source_id":"[^"]*"', f'"source_id":"{"x" * 100_000}"', events.read_text()))
    (runs / "paired" / "result.json").unlink(missing_ok=True)
    assert published(project).runs == 2
    assert published(project).unchanged == 2
