"""Where a project may lie, and where it is started from; no torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from tests.tiny_projects import DOUBLED, noted, outcomes


def test_a_subdirectory_uses_the_configuration_of_the_project_above(project):
    inside = project.path / "deep" / "below"
    inside.mkdir(parents=True)
    done = project.run("run", "--rounds", "2", "-c", "tiny.sum", "--no-progress", cwd=inside)
    assert done.returncode == 0, done.stderr
    assert (project.path / ".perfguard" / "runs").is_dir()
    assert not (inside / ".perfguard").exists()


def test_a_project_that_is_part_of_a_larger_repository_is_compared_with_its_own_past(project):
    part = project.path / "packages" / "one"
    part.mkdir(parents=True)
    for name in ("perfguard.toml", "bench_tiny.py", "tiny_work.py"):
        (project.path / name).rename(part / name)
    project.commit("into a package")
    project.replace("packages/one/tiny_work.py", *DOUBLED)
    done = project.run("compare", "-c", "tiny.sum", "--max-blocks", "2", "--format", "json", cwd=part)
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert outcomes(result)["tiny.sum"] not in ("failed", "no-baseline"), result["reasons"]
    assert noted(result, "arms.files_differ")[0]["values"]["files"] == ["tiny_work.py"]
    assert len(project.git("worktree", "list").splitlines()) == 1


def test_spaces_and_letters_outside_ascii_in_the_path_are_no_obstacle(project):
    moved = project.path.parent / "mein Gerät ✓"
    shutil.move(project.path, moved)
    done = project.run("compare", "--measure-anyway", "--max-blocks", "1", "--format", "json", cwd=moved)
    result = json.loads(done.stdout)
    assert result["gate"]["verdicts"][0]["outcome"] != "failed", result["reasons"]


def test_a_project_reached_through_a_link_is_the_project(project):
    link = project.path.parent / "link"
    link.symlink_to(project.path)
    done = project.run("compare", "--measure-anyway", "--max-blocks", "1", "--format", "json", cwd=link)
    result = json.loads(done.stdout)
    assert result["gate"]["verdicts"][0]["outcome"] != "failed", result["reasons"]


def test_an_environment_inside_the_project_is_not_taken_for_its_source(project):
    """`.venv` in the checkout is the usual place; what is installed there belongs to neither arm's tree."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(project.path / ".venv")], check=True, capture_output=True
    )
    project.write(".gitignore", ".venv\n")
    packages = next((project.path / ".venv" / "lib").glob("python3*")) / "site-packages"
    (packages / "third_party.py").write_text("FACTOR = 1\n")
    project.replace("tiny_work.py", "LENGTH = 20_000", "from third_party import FACTOR\nLENGTH = 20_000 * FACTOR")
    project.commit("uses an installed package")
    result = project.result("compare", "--measure-anyway", "--python", ".venv", "--max-blocks", "1")
    assert (result["gate"]["identical"], result["gate"]["blocks_total"]) == (True, 1)


def test_without_git_two_directories_can_still_be_compared(project):
    shutil.rmtree(project.path / ".git")
    other = project.path.parent / "other"
    shutil.copytree(project.path, other)
    result = project.result("compare", "--baseline", "dir:../other", "--max-blocks", "2")
    assert (result["exit_code"], result["gate"]["identical"]) == (0, True), result["reasons"]
    refused = project.run("compare")
    assert refused.returncode == 2
    assert "is not inside a git repository; use dir:PATH" in refused.stderr
    gate = project.run("gate")
    assert gate.returncode == 2
    assert "no baseline is stored for this machine" in gate.stderr


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(project):
    (project.path / ".perfguard").write_text("a file where the folder should be")
    done = project.run("run")
    assert done.returncode == 3
    assert "cannot be written" in done.stderr
    assert "nothing was measured" in done.stderr
