"""Trees of a stranger's change that lead their reader astray: links, devices, files that rewrite themselves."""

from __future__ import annotations

import pytest

from perfguard.runner.process.sandboxing import Holder, holder
from tests.tiny_projects import DOUBLED, outcomes

pytestmark = pytest.mark.skipif(holder() is not Holder.BUBBLEWRAP, reason="bubblewrap does not work here")

GATE = ("compare", "--baseline", "git:HEAD^1", "--candidate", "git:HEAD", "--policy-from", "HEAD^1", "--confine",
        "--no-progress")  # fmt: skip


@pytest.fixture
def tmp_path(outside_memory):
    return outside_memory


def link(project, name, target):
    place = project.path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def test_a_folder_named_like_the_interpreter_is_not_run(project):
    project.replace("perfguard.toml", 'suite = "tiny"', 'suite = "tiny"\npython = "python3"')
    project.commit("an interpreter by its name")
    ran = project.path.parent / "ran"
    project.write("python3/bin/python", f"#!/bin/sh\ntouch {ran}\n").chmod(0o755)
    project.commit("a folder of that name")
    project.run(*GATE, "--max-blocks", "1")
    assert not ran.exists()


def test_an_interpreter_of_the_checkout_is_refused(project):
    project.replace("perfguard.toml", 'suite = "tiny"', 'suite = "tiny"\npython = "./tools/bin/python"')
    ran = project.path.parent / "ran"
    project.write("tools/bin/python", f"#!/bin/sh\ntouch {ran}\n").chmod(0o755)
    project.commit("an interpreter in the tree")
    project.git("commit", "-q", "--allow-empty", "-m", "nothing")
    done = project.run(*GATE)
    assert done.returncode == 2
    assert "part of the checkout" in done.stderr
    assert not ran.exists()


def test_links_of_a_tree_that_looks_like_perfguard_are_not_copied(project):
    secret = project.path.parent / "home" / "secret"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("hunter2", encoding="utf-8")
    project.write("perfguard/benchmarks/catalog.py", "")
    link(project, "perfguard/kernels/leak", secret.parent)
    link(project, "perfguard/kernels/self", ".")
    project.commit("looks like perfguard")
    project.run(*GATE, "--max-blocks", "1")
    run = project.latest_run()
    assert not [path for path in run.rglob("*") if path.name in {"leak", "self", "secret"}]


def test_a_device_among_the_sources_is_not_waited_for(project):
    link(project, "x.py", "/dev/ptmx")
    project.replace("bench_tiny.py", 'tags=["no-torch"], ', "")
    project.commit("a device")
    done = project.run(*GATE, "--max-blocks", "1", "-c", "tiny.sum")
    assert done.returncode in (0, 4), done.stderr  # nothing is slower, and one block cannot tell


@pytest.mark.parametrize("place", ["src", "."])
def test_slower_code_is_never_untouched_wherever_it_lies_and_whatever_it_writes_to_itself(project, place):
    work = (project.path / "tiny_work.py").read_text(encoding="utf-8")
    (project.path / "tiny_work.py").unlink()
    file = project.write(f"{place}/tiny_work.py", work)
    project.git("add", "-A")
    project.git("commit", "-q", "--allow-empty", "-m", "at its place")
    restored = f"open(__file__, 'w').write({work!r})\n" if place == "." else ""
    project.write(f"{place}/tiny_work.py", restored + work.replace(*DOUBLED))
    project.commit("slower")
    found = outcomes(project.result(*GATE))
    assert file.exists()
    assert "untouched" not in found.values()
    if place == "src":  # a file that has replaced itself is as fast as before in all processes but the first
        assert found["tiny.sum"] in ("regressed", "inconclusive")  # the latter on a busy host


def test_a_package_that_stands_before_a_module_leaves_what_imports_it_touched(project):
    work = (project.path / "tiny_work.py").read_text(encoding="utf-8")
    project.write("tiny_work/__init__.py", work.replace(*DOUBLED))
    project.commit("a package by the name of a module")
    result = project.result(*GATE, "--max-blocks", "1")
    assert "untouched" not in outcomes(result).values()


def test_a_module_that_stands_before_one_of_pythons_own_leaves_nothing_untouched(project):
    project.write("numbers.py", "from _numbers import *\n")
    project.commit("a module of Python's own name")
    result = project.result(*GATE, "--max-blocks", "1")
    assert "untouched" not in outcomes(result).values()


def test_iterations_that_are_claimed_and_not_made_fail_the_case(project):
    forged = (
        "import sys\n"
        'samples = sys.modules.get("perfguard.worker.timing.samples")\n'
        "if samples is not None:\n"
        "    real = samples.time_iterations\n"
        "    samples.time_iterations = lambda *a: (lambda e: e._replace(iterations=e.iterations * 3))(real(*a))\n"
    )
    project.write("tiny_work.py", forged + (project.path / "tiny_work.py").read_text(encoding="utf-8"))
    project.commit("claims more")
    result = project.result(*GATE, "--max-blocks", "2")
    assert set(outcomes(result).values()) == {"failed"}


def test_files_of_perfguards_own_folder_are_refused(project):
    victim = project.path.parent / "victim" / "arms-of-mine"
    victim.mkdir(parents=True)
    link(project, ".perfguard/runs/x", victim.parent)
    project.git("add", "-f", ".perfguard/runs/x")
    project.git("commit", "-q", "-m", "a link there")
    done = project.run(*GATE)
    assert done.returncode == 2
    assert "perfguard's own" in done.stderr
    assert victim.is_dir()


def test_a_submodule_that_hides_in_perfguards_own_folder_is_refused(project):
    head = project.git("rev-parse", "HEAD").strip()
    project.write(".gitmodules", '[submodule "x"]\n path = .perfguard\n url = ./x\n ignore = all\n')
    project.git("add", "-f", ".gitmodules")
    project.git("update-index", "--add", "--cacheinfo", f"160000,{head},.perfguard")
    project.git("commit", "-q", "-m", "a submodule there")
    done = project.run(*GATE)
    assert done.returncode == 2
    assert "perfguard's own" in done.stderr


@pytest.mark.parametrize("place", [".perfguard", ".perfguard/runs"])
def test_a_folder_of_runs_that_leads_elsewhere_is_refused_also_without_a_policy(project, place):
    victim = project.path.parent / "victim"
    (victim / "x" / "arms").mkdir(parents=True)
    (victim / "x" / "arms" / "mine").touch()
    link(project, place, victim)
    done = project.run("compare", "--confine", "--max-blocks", "1")
    assert done.returncode == 2
    assert "is a link or a repository" in done.stderr
    assert (victim / "x" / "arms" / "mine").exists()


def test_a_set_up_command_writes_no_marker_through_a_link(project):
    victim = project.path.parent / "victim.txt"
    victim.write_text("mine", encoding="utf-8")
    project.replace("perfguard.toml", 'suite = "tiny"', 'suite = "tiny"\nsetup = "sh setup.sh"')
    project.write("setup.sh", ":\n")
    project.commit("a set-up command")
    project.write("setup.sh", f'ln -s {victim} "$VIRTUAL_ENV/perfguard-ready"\n')
    project.commit("links its marker")
    project.run(*GATE, "--max-blocks", "1")
    assert victim.read_text(encoding="utf-8") == "mine"
