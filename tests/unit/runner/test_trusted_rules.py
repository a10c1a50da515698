from __future__ import annotations

import os

import pytest

from perfguard.errors import ArmError, NoRulesYetError, UsageError
from perfguard.records.facts import Severity
from perfguard.runner.arms.resolve import parse_arm, source_tree
from perfguard.runner.trusted_rules import policy_of_revision, require_own_folder

RULES = 'pytest = ["tests/perf_*.py"]\ntimer = ["timed/*.py"]\nasv = "asv.conf.json"\n'


def test_a_folder_of_perfguards_own_that_the_base_has_too_is_no_change(project):
    project.write(".perfguard/old.txt", "there all along")
    before = project.commit("mistake")
    after = project.git("commit-tree", "-p", before, "-m", "next", f"{before}^{{tree}}")
    require_own_folder(project.path, before, after)
    with pytest.raises(UsageError, match=r"brings '\.perfguard/old\.txt'"):
        require_own_folder(project.path, f"{before}^", after)


def test_a_change_that_brings_the_first_settings_has_no_rules_to_go_by(empty_project):
    project = empty_project
    project.git("init", "-q", "-b", "main")
    project.write("net.py", "")
    base = project.commit("a project")
    project.write("perfguard.toml", RULES)
    candidate = project.commit("perfguard")
    with pytest.raises(NoRulesYetError), policy_of_revision(project.path, base, os.environ, {}, candidate=candidate):
        pytest.fail("there are rules")
    with policy_of_revision(project.path, base, os.environ, {}, candidate=base) as rules:
        assert rules.loaded.config.benchmarks == ()
    with policy_of_revision(project.path, candidate, os.environ, {}, candidate=candidate) as rules:
        assert rules.loaded.config.pytest == ("tests/perf_*.py",)


@pytest.mark.parametrize(
    "name", ["perfguard.toml", "tests/perf_a.py", "part/conftest.py", "timed/b.py", "asv.conf.json"]
)
def test_every_file_that_makes_a_gates_rules_is_named_where_the_candidate_changes_it(project, name):
    project.write("perfguard.toml", RULES)
    trusted = project.commit("rules")
    project.write(name, (project.path / name).read_text() + "\n" if (project.path / name).exists() else "{}")
    project.write("other.py", "")
    candidate = project.commit("other rules")
    project.git("checkout", "-q", trusted)  # the candidate need not be what is checked out
    with policy_of_revision(project.path, trusted, os.environ, {}, candidate=candidate) as rules:
        (changed,) = [note for note in rules.notes if note.code == "run.rules_changed"]
    assert (changed.severity, changed.values["files"], changed.values["more"]) == (Severity.GRAVE, (name,), None)


def test_a_project_that_a_revision_turns_into_a_link_to_another_is_refused(project, tmp_path):
    for name in ("honest", "fast"):
        project.write(f"{name}/perfguard.toml", "")
    project.commit("two projects")
    inner = project.path / "honest"
    place = tmp_path / "tree"
    tree, _, _ = source_tree(parse_arm("git:HEAD"), inner, place)
    assert (tree / "perfguard.toml").is_file()
    project.git("rm", "-q", "-r", "honest")
    inner.symlink_to("fast", target_is_directory=True)
    linked = project.commit("a link")
    another = tmp_path / "another"
    another.mkdir()
    project.git("checkout", "-q", "HEAD^1")
    with pytest.raises(ArmError, match="is a link to another place in that revision"):
        source_tree(parse_arm(f"git:{linked}"), inner, another / "tree")
