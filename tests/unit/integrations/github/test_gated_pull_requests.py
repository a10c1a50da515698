"""What a gate on a pull request compares, refuses and leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfguard.errors import ArmError, HostUnfitError, UsageError
from perfguard.integrations.github.pull_requests import (
    Revisions,
    keep_run,
    reproducing,
    require_fresh,
    require_no_credentials,
    require_no_token,
    revisions_of,
    summary_of,
)
from perfguard.report.comment.comment import CommentContext, render_comment
from perfguard.runner.arms.credentials import FILES, VARIABLES, files_found
from tests.changed_values import replace
from tests.commented_results import BASE, MERGE, PASSED


@pytest.fixture
def repository(project):
    """A main branch that moved on after a branch left it, and the merge that GitHub would check out."""
    project.git("switch", "-q", "-c", "work")
    project.write("work.txt", "work")
    project.commit("work")
    project.git("switch", "-q", "main")
    project.write("main.txt", "main")
    project.commit("main moves on")
    project.git("switch", "-q", "--detach", "main")
    project.git("merge", "-q", "--no-ff", "-m", "merge", "work")
    project.git("update-ref", "refs/remotes/origin/main", "main")
    return project


def test_a_merge_is_compared_with_the_branch_that_it_goes_into(repository):
    found = revisions_of(repository.path, "parent", "main")
    assert found == Revisions(
        baseline=repository.git("rev-parse", "main"), candidate=repository.git("rev-parse", "HEAD")
    )


def test_a_branch_is_compared_with_where_it_left(repository):
    repository.git("switch", "-q", "work")
    assert revisions_of(repository.path, "merge-base", "main").baseline == repository.git("rev-parse", "main~1")


def test_a_revision_of_ones_own_is_taken(repository):
    assert revisions_of(repository.path, "work", None).baseline == repository.git("rev-parse", "work")
    with pytest.raises(ArmError, match="'-x' is not a revision"):
        revisions_of(repository.path, "-x", None)


def test_a_first_commit_has_no_parent_and_is_told_so(project):
    with pytest.raises(ArmError, match="fetch-depth: 2"):
        revisions_of(project.path, "parent", "main")


def test_a_folder_outside_git_is_told_so(empty_project):
    with pytest.raises(ArmError, match="is not inside a git repository"):
        revisions_of(empty_project.path, "parent", "main")


@pytest.mark.parametrize("name", VARIABLES)
def test_each_credential_of_a_job_is_refused_and_not_shown(name):
    with pytest.raises(UsageError, match=name) as caught:
        require_no_token({name: "secret-value"})
    assert "secret-value" not in str(caught.value)
    require_no_token({name: ""})


def test_a_run_is_kept_without_links_and_checkouts(tmp_path):
    run = tmp_path / "run"
    (run / "raw").mkdir(parents=True)
    (run / "raw" / "0000-a.json").write_text("{}")
    (run / "raw" / "secret").symlink_to("/etc/passwd")
    (run / "arms.json").write_text("{}")
    for name in ("arms", "arms-relocated-for-confirmation"):
        (run / name).mkdir()
        (run / name / "big").write_text("x")
    (run / "link").symlink_to("/etc")
    (tmp_path / "out").mkdir()
    keep_run(replace(PASSED, folder=str(run)), tmp_path / "out")
    kept = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*"))
    assert kept == ["arms.json", "raw", "raw/0000-a.json"]


def test_a_run_that_cannot_be_kept_is_one_sentence(tmp_path):
    with pytest.raises(HostUnfitError, match="could not be copied to"):
        keep_run(replace(PASSED, folder=str(tmp_path / "gone")), tmp_path / "out")


def test_an_empty_or_missing_folder_takes_a_run(tmp_path):
    (tmp_path / "empty").mkdir()
    require_fresh(tmp_path / "new", tmp_path)
    require_fresh(tmp_path / "empty", tmp_path)


def test_a_folder_that_a_link_of_the_checkout_leads_to_is_refused(tmp_path):
    checkout = tmp_path / "checkout"
    (tmp_path / "elsewhere").mkdir()
    checkout.mkdir()
    (checkout / "link").symlink_to(tmp_path / "elsewhere")
    require_fresh(Path("new"), checkout)
    with pytest.raises(UsageError, match="elsewhere/new by a link"):
        require_fresh(Path("link/new"), checkout)
    require_fresh(checkout / "link" / "new", checkout)  # whoever names it in full means it


def test_the_summary_is_kept_beside_the_run(tmp_path):
    text = summary_of(PASSED, CommentContext(marker="gate"), tmp_path, limit=60_000)
    assert text == render_comment(PASSED, CommentContext(marker="gate"), limit=60_000)
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == text


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(UsageError, match="name another"):
        require_fresh(tmp_path / "out", tmp_path)


def test_only_a_comparison_of_two_commits_has_a_command():
    command = f"perfguard compare --baseline git:{BASE} --candidate git:{MERGE}"
    assert reproducing(PASSED) == f"{command} --suite pr"
    assert reproducing(replace(PASSED, suite="$(id)")) == command
    for text in ("dir:.", "git:main", f"git:{BASE} ; id", f"git:{BASE}\n"):
        arms = {**PASSED.arms, "baseline": replace(PASSED.arms["baseline"], text=text)}
        assert reproducing(replace(PASSED, arms=arms)) is None
    assert reproducing(replace(PASSED, arms={})) is None


@pytest.mark.parametrize(
    ("text", "source_id", "has_command"),
    [
        ("git:main", "t1", True),
        ("dir:.", "t1", True),
        ("dir:.", "t1+changed", False),
        ("git:main+env:X=1", "t1", False),
        ("git:main; id", "t1", False),
    ],
)
def test_a_commit_that_was_measured_as_it_is_has_a_command(text, source_id, has_command):
    arm = replace(PASSED.arms["baseline"], text=text, source_id=source_id, commit=BASE)
    found = reproducing(replace(PASSED, arms={**PASSED.arms, "baseline": arm}))
    command = f"perfguard compare --baseline git:{BASE} --candidate git:{MERGE} --suite pr"
    assert found == (command if has_command else None)


def test_code_of_a_pull_request_is_not_measured_where_it_could_read_a_token(project, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    require_no_credentials(project.path)
    require_no_credentials(tmp_path)  # no repository
    project.git("config", "credential.helper", "store")
    with pytest.raises(UsageError, match=str(project.path / ".git" / "config")):
        require_no_credentials(project.path)


@pytest.mark.parametrize("name", FILES)
def test_files_that_hold_credentials_are_found(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("secret", encoding="utf-8")
    assert list(files_found(tmp_path, None)) == [f"~/{name}"]


@pytest.mark.parametrize(
    ("config", "is_found"),
    [
        ('[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic eDp5\n', True),
        ("[credential]\n\thelper = store\n", True),
        ('[remote "origin"]\n\turl = https://user:secret@example.org/net.git\n', True),
        ('[remote "origin"]\n\turl = https://github.com/octo/net\n', False),
        ('[remote "origin"]\n\turl = git@github.com:octo/net.git\n', False),
    ],
)
def test_a_token_in_the_configuration_of_git_is_found(tmp_path, config, is_found):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(config, encoding="utf-8")
    assert bool(list(files_found(tmp_path / "home", tmp_path / ".git"))) is is_found
