"""What `perfguard init` writes, keeps and says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import asdict

from perfguard import __version__
from perfguard.cli.commands.init import ACTION, BENCHMARK, SUITE, Fate, plan_scaffold, starting_config, write_scaffold
from perfguard.cli.commands.init import init_command as command
from perfguard.config import Config, load_config
from perfguard.errors import ConfigError, UsageError

WORKFLOWS = {".github/workflows/perf.yml", ".github/workflows/perf-report.yml", ".github/workflows/baseline.yml"}
GITLAB = {".gitlab/perfguard.yml", ".gitlab-ci.yml"}
ALL = {"perfguard.toml", BENCHMARK, ".gitignore", *WORKFLOWS}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def repository(tmp_path):
    """An empty git repository."""
    place = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    return place


def planned(directory, *, workflows=True, force=False, action=ACTION):
    return plan_scaffold(directory, {"XDG_CONFIG_HOME": "/nowhere"}, workflows=workflows, force=force, action=action)


def fates(scaffold):
    return {file.name: file.fate for file in scaffold.files}


def files_in(directory):
    return {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(directory).parts[:1]
    }


def settings_of(tmp_path, text):
    place = tmp_path / "settings"
    place.mkdir()
    (place / "perfguard.toml").write_text(text, encoding="utf-8")
    return load_config(place, {"XDG_CONFIG_HOME": "/nowhere"})


class TestTheConfiguration:
    def test_it_is_valid_and_sets_only_what_a_first_benchmark_needs(self, tmp_path):
        loaded = settings_of(tmp_path, starting_config())
        assert set(loaded.origins) == {"suite", "benchmarks", "suites"}
        assert loaded.config.suites[loaded.config.suite].gating == ("first_step",)

    def test_every_setting_is_in_it(self):
        text = starting_config()
        for name in Config.__struct_fields__:
            assert re.search(rf"^(# )?(\[?{name}\]|{name} =|\[{name}\.)", text, re.MULTILINE), name

    def test_what_is_commented_out_is_the_default(self, tmp_path):
        text = "".join(line for line in starting_config().splitlines(keepends=True) if not line.startswith("##"))
        loaded = settings_of(tmp_path, re.sub("^# ", "", text, flags=re.MULTILINE))
        assert set(loaded.origins) == set(Config.__struct_fields__)
        given, defaults = asdict(loaded.config), asdict(Config())
        changed = {name for name in given if defaults[name] is not None and given[name] != defaults[name]}
        assert changed == {"suite", "benchmarks", "suites", "keys"}
        unset = [name for name, value in defaults.items() if value is None]
        assert all(given[name] for name in unset), "a setting without a default needs an example"

    def test_every_setting_has_the_comment_that_documents_it(self):
        text = starting_config()
        assert not re.search(r"^##\s*$", text, re.MULTILINE)
        assert "\n## Upper bound on blocks.\n# max_blocks = 200\n" in text
        assert len(max(text.splitlines(), key=len)) <= 100


class TestAnEmptyRepository:
    def test_gets_all_files(self, repository):
        scaffold = planned(repository)
        write_scaffold(scaffold)
        assert fates(scaffold) == dict.fromkeys(ALL, Fate.WRITTEN)
        assert files_in(repository) == ALL
        assert (repository / ".gitignore").read_text() == ".perfguard/\n/report.html\n"

    def test_gets_no_workflows_where_none_are_wanted(self, repository):
        write_scaffold(planned(repository, workflows=False))
        assert files_in(repository) == ALL - WORKFLOWS

    def test_is_told_about_the_placeholder_in_the_workflows(self, repository):
        assert planned(repository).needs_action
        assert not planned(repository, action="me/perfguard@v1").needs_action
        assert not planned(repository, workflows=False).needs_action

    def test_a_second_time_nothing_is_written(self, repository):
        write_scaffold(planned(repository))
        again = planned(repository)
        assert fates(again) == dict.fromkeys(ALL, Fate.KEPT)
        assert again.changed == ()

    def test_planning_writes_nothing(self, repository):
        planned(repository)
        assert files_in(repository) == set()


class TestOnGitLab:
    @pytest.mark.parametrize(
        "remote", ["git@gitlab.example.org:team/nets.git", "https://me:x@GitLab.com/team/nets.git"]
    )
    def test_a_remote_there_gets_a_job_and_a_pipeline_that_includes_it(self, repository, remote):
        subprocess.run(["git", "-C", str(repository), "remote", "add", "origin", remote], check=True)
        scaffold = planned(repository)
        write_scaffold(scaffold)
        assert files_in(repository) == (ALL - WORKFLOWS) | GITLAB
        assert (repository / ".gitlab-ci.yml").read_text() == "include: /.gitlab/perfguard.yml\n"
        assert not scaffold.needs_action
        assert fates(planned(repository, force=True))[".gitlab-ci.yml"] is Fate.KEPT

    def test_a_project_of_that_name_elsewhere_gets_workflows(self, repository):
        remote = "https://github.com/gitlab-org/nets.git"
        subprocess.run(["git", "-C", str(repository), "remote", "add", "origin", remote], check=True)
        assert set(fates(planned(repository))) == ALL

    def test_a_pipeline_that_is_there_is_kept_and_what_to_add_is_said(self, repository):
        (repository / ".gitlab-ci.yml").write_text("build:\n  script: make\n")
        scaffold = planned(repository)
        assert fates(scaffold)[".gitlab-ci.yml"] is Fate.KEPT
        assert [hint.partition(";")[0] for hint in scaffold.hints] == [
            "add `include: /.gitlab/perfguard.yml` to .gitlab-ci.yml"
        ]
        (repository / ".gitlab-ci.yml").write_text("include:\n  - /.gitlab/perfguard.yml\n")
        assert planned(repository).hints == ()

    def test_nothing_is_written_for_it_where_no_workflows_are_wanted(self, repository):
        (repository / ".gitlab-ci.yml").write_text("build:\n  script: make\n")
        assert set(fates(planned(repository, workflows=False))) == ALL - WORKFLOWS


class TestFilesThatAreThere:
    def test_are_kept_byte_for_byte(self, repository):
        write_scaffold(planned(repository, workflows=False))
        (repository / BENCHMARK).write_text("mine")
        (repository / "perfguard.toml").write_text('benchmarks = ["benchmarks/*.py"]\n')
        write_scaffold(planned(repository))
        assert (repository / BENCHMARK).read_text() == "mine"
        assert (repository / "perfguard.toml").read_text() == 'benchmarks = ["benchmarks/*.py"]\n'
        assert files_in(repository) == ALL

    def test_are_replaced_by_force(self, repository):
        write_scaffold(planned(repository))
        (repository / BENCHMARK).write_text("mine")
        forced = planned(repository, force=True)
        write_scaffold(forced)
        assert fates(forced) == {**dict.fromkeys(ALL, Fate.REPLACED), ".gitignore": Fate.KEPT}
        assert "def first_step" in (repository / BENCHMARK).read_text()
        assert files_in(repository) == ALL  # nothing temporary is left

    def test_a_link_is_kept_and_by_force_replaced_instead_of_followed(self, repository, tmp_path):
        elsewhere = tmp_path / "elsewhere"
        (repository / "benchmarks").mkdir()
        (repository / BENCHMARK).symlink_to(elsewhere)
        write_scaffold(planned(repository))
        assert (repository / BENCHMARK).is_symlink()
        write_scaffold(planned(repository, force=True))
        assert not (repository / BENCHMARK).is_symlink()
        assert not elsewhere.exists()

    @pytest.mark.parametrize("pattern", ["benchmarks/*.py", BENCHMARK, "**/perf_*.py"])
    def test_a_configuration_that_names_the_benchmark_needs_no_note(self, repository, pattern):
        (repository / "perfguard.toml").write_text(f'benchmarks = ["{pattern}"]\n')
        assert planned(repository).files[0].note == ""

    def test_a_configuration_that_does_not_is_told_what_to_add(self, repository):
        (repository / "perfguard.toml").write_text('benchmarks = ["bench/*.py"]\n')
        assert BENCHMARK in planned(repository).files[0].note

    def test_a_configuration_that_is_wrong_is_an_error_before_anything_is_written(self, repository):
        (repository / "perfguard.toml").write_text("marggin = 1\n")
        with pytest.raises(ConfigError, match="did you mean 'margin'"):
            planned(repository)

    @pytest.mark.parametrize("force", [False, True])
    def test_settings_in_pyproject_stay_there(self, repository, force):
        (repository / "pyproject.toml").write_text("[tool.perfguard]\nseed = 7\n")
        scaffold = planned(repository, force=force)
        write_scaffold(scaffold)
        assert fates(scaffold)["pyproject.toml"] is Fate.KEPT
        assert not (repository / "perfguard.toml").exists()
        assert load_config(repository, {}).config.seed == 7

    def test_a_pyproject_of_something_else_is_no_configuration(self, repository):
        (repository / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
        assert fates(planned(repository))["perfguard.toml"] is Fate.WRITTEN


class TestTheIgnoredFolder:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (b"*.pyc\n", b"*.pyc\n.perfguard/\n/report.html\n"),
            (b"*.pyc", b"*.pyc\n.perfguard/\n/report.html\n"),
            (b"*.pyc\r\n", b"*.pyc\r\n.perfguard/\r\n/report.html\r\n"),
            (b"", b".perfguard/\n/report.html\n"),
            (b"report.html\n", b"report.html\n.perfguard/\n"),
            (b"caf\xe9/\n", b"caf\xe9/\n.perfguard/\n/report.html\n"),
        ],
    )
    def test_is_added_once_to_what_is_there(self, repository, before, after):
        (repository / ".gitignore").write_bytes(before)
        for _ in range(2):
            write_scaffold(planned(repository, force=True))
            assert (repository / ".gitignore").read_bytes() == after

    @pytest.mark.parametrize("line", [".perfguard", ".perfguard/", "/.perfguard/", "  /.perfguard  "])
    def test_is_found_however_it_is_written(self, repository, line):
        (repository / ".gitignore").write_text(f"a\n{line}\nreport.html\n")
        assert fates(planned(repository))[".gitignore"] is Fate.KEPT

    def test_the_file_keeps_its_mode(self, repository):
        path = repository / ".gitignore"
        path.write_text("a\n")
        path.chmod(0o600)
        write_scaffold(planned(repository))
        assert path.stat().st_mode & 0o777 == 0o600


class TestPlaces:
    def test_outside_git_all_is_written_with_a_hint(self, tmp_path):
        scaffold = planned(tmp_path)
        write_scaffold(scaffold)
        assert files_in(tmp_path) == ALL
        assert "git init" in scaffold.hints[0]

    def test_below_the_top_of_a_repository_there_are_no_workflows_and_the_reason_is_said(self, repository):
        scaffold = planned(repository / "packages" / "one")
        write_scaffold(scaffold)
        assert files_in(repository / "packages" / "one") == ALL - WORKFLOWS
        assert any(str(repository) in hint for hint in scaffold.hints)

    @pytest.mark.parametrize("name", ["benchmarks", ".github", ".github/workflows"])
    def test_a_file_in_the_place_of_a_folder_is_an_error_before_anything_is_written(self, repository, name):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("")
        with pytest.raises(UsageError, match="in the way"):
            planned(repository, force=True)
        assert files_in(repository) == {name}

    def test_a_folder_in_the_place_of_a_file_is_an_error(self, repository):
        (repository / "perfguard.toml").mkdir()
        with pytest.raises(UsageError, match="in the way"):
            planned(repository, force=True)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_that_cannot_be_written_is_one_sentence(self, repository):
        repository.chmod(0o500)
        with pytest.raises(UsageError, match="cannot be written"):
            write_scaffold(planned(repository))


class TestTheAction:
    def test_another_one_changes_workflows_that_are_as_they_were_written_and_nothing_else(self, repository):
        write_scaffold(planned(repository))
        (repository / "perfguard.toml").write_text("# mine")
        edited = repository / ".github/workflows/perf.yml"
        edited.write_text(edited.read_text() + "# mine")
        scaffold = planned(repository, action="me/perfguard@v1")
        replaced = {name for name, fate in fates(scaffold).items() if fate is Fate.REPLACED}
        assert replaced == WORKFLOWS - {".github/workflows/perf.yml"}
        write_scaffold(scaffold)
        assert all("uses: me/perfguard@v1" in (repository / name).read_text() for name in replaced)
        assert set(fates(planned(repository)).values()) == {Fate.KEPT}  # the placeholder takes nothing back

    def test_it_is_named_once_a_workflow_at_this_version(self, repository):
        assert ACTION.endswith(f"@v{__version__}")
        write_scaffold(planned(repository))
        for name in WORKFLOWS:
            text = (repository / name).read_text()
            assert text.count(f"uses: {ACTION} # zizmor: ignore[unpinned-uses]") == 1
            assert "PERFGUARD_ACTION" not in text

    def test_a_commit_needs_no_excuse(self, repository):
        write_scaffold(planned(repository, action=f"me/perfguard@{COMMIT}"))
        text = (repository / ".github/workflows/perf.yml").read_text()
        assert f"- uses: me/perfguard@{COMMIT}\n" in text
        assert "zizmor" not in text

    @pytest.mark.parametrize("wrong", ["", "perfguard", "me/perfguard", "me/perfguard@", "me/p@v1\n  x: y", "./@v1 #"])
    def test_what_is_no_reference_is_refused(self, repository, wrong):
        with pytest.raises(UsageError, match="OWNER/NAME@REF"):
            planned(repository, action=wrong)


class TestWhatIsPrinted:
    def run(self, *arguments):
        done = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    def test_each_file_with_its_fate_then_the_next_commands(self, repository, monkeypatch):
        monkeypatch.chdir(repository)
        (repository / BENCHMARK).parent.mkdir()
        (repository / BENCHMARK).write_text("mine")
        lines = self.run().splitlines()
        assert lines[0] == "written  perfguard.toml"
        assert f"kept     {BENCHMARK}" in lines
        commands = [line.strip() for line in lines[lines.index("next:") :] if line.startswith("     ")]
        assert [*commands[:2], *commands[3:]] == [
            "perfguard run",
            "perfguard init --action OWNER/NAME@REF",
            "perfguard gate",
        ]
        assert commands[2].startswith("git add perfguard.toml .github .gitignore && git commit -m")

    def test_a_dry_run_says_what_it_would_do_and_does_nothing(self, repository):
        (repository / "perfguard.toml").write_text("suite = 'pr'\n")
        said = self.run("--dir", str(repository), "--dry-run", "--force")
        assert "would replace  perfguard.toml" in said
        assert f"would write    {BENCHMARK}" in said
        assert said.endswith("nothing was written\n")
        assert files_in(repository) == {"perfguard.toml"}

    def test_another_directory_is_named_where_the_commands_are(self, tmp_path):
        said = self.run("--dir", str(tmp_path / "new one"), "--action", "me/perfguard@v1")
        assert f"next, in '{tmp_path}/new one':" in said
        assert f"[suites.{SUITE}]" in (tmp_path / "new one" / "perfguard.toml").read_text()

    def test_a_second_time_it_says_that_all_is_there(self, repository):
        self.run("--dir", str(repository))
        assert "all of it was there" in self.run("--dir", str(repository))


def test_the_written_benchmark_is_clean_by_ruff(repository):
    if shutil.which("ruff", path=Path(sys.executable).parent) is None:
        pytest.skip("ruff is not installed beside this interpreter")
    write_scaffold(planned(repository))
    rules = ("--isolated", "--no-cache")
    for arguments in (("format", "--check", *rules), ("check", "--select", "E,F,W,I,B,D,UP,SIM,PL,RUF", *rules)):
        done = subprocess.run(
            [Path(sys.executable).parent / "ruff", *arguments, BENCHMARK],
            cwd=repository,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
