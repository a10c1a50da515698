from __future__ import annotations

import compileall
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import perfguard
from perfguard.errors import MeasurementError
from perfguard.runner.process.launching import build_bundle, is_perfguard_checkout


def test_a_bundle_holds_what_a_worker_needs_and_nothing_of_the_parent(tmp_path):
    assert build_bundle(tmp_path / "lib", tree=None) == ()
    package = tmp_path / "lib" / "perfguard"
    rooms = {"records", "worker", "benchmarks", "kernels", "hetero", "tasks"}
    assert {path.name for path in package.iterdir() if path.is_dir()} == rooms
    assert (tmp_path / "lib" / "pyperf" / "__init__.py").is_file()


def test_byte_code_is_taken_from_perfguard_and_never_from_a_tree_under_test(tmp_path):
    benchmarks = tmp_path / "tree" / "perfguard" / "benchmarks"
    (benchmarks / "__pycache__").mkdir(parents=True)
    (benchmarks / "catalog.py").write_text("")
    (benchmarks / "__pycache__" / f"catalog.{sys.implementation.cache_tag}.pyc").write_bytes(b"something else")
    compileall.compile_dir(Path(perfguard.__file__).parent / "worker", quiet=2)
    build_bundle(tmp_path / "lib", tree=tmp_path / "tree")
    package = tmp_path / "lib" / "perfguard"
    compiled = Path(importlib.util.cache_from_source(str(package / "worker" / "serve.py")))
    stamp = int.from_bytes(compiled.read_bytes()[8:12], "little")  # the source's time, which must match
    assert stamp == int((package / "worker" / "serve.py").stat().st_mtime)
    assert not list((package / "benchmarks").rglob("*.pyc"))


def test_a_bundle_works_in_an_interpreter_that_knows_nothing_else(tmp_path):
    """-I and -S: no site-packages, no PYTHONPATH; what a foreign environment offers at the least."""
    build_bundle(tmp_path / "lib", tree=None)
    (tmp_path / "bench.py").write_text(
        "import perfguard\n@perfguard.benchmark(params={'n': [1, 2]})\ndef own(n):\n    return lambda: n\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", str(tmp_path / "lib" / "start.py"), "perfguard.worker.discover", "bench.py"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert '"name": "own"' in done.stdout


def test_another_projects_tree_leaves_the_bundle_as_it_is(tmp_path):
    tree = tmp_path / "tree"
    (tree / "perfguard").mkdir(parents=True)
    assert not is_perfguard_checkout(tree)
    assert build_bundle(tmp_path / "lib", tree=tree) == ()


def test_of_a_perfguard_checkout_the_benchmarks_are_under_test(tmp_path):
    benchmarks = tmp_path / "tree" / "perfguard" / "benchmarks"
    benchmarks.mkdir(parents=True)
    (benchmarks / "catalog.py").write_text("MARK = 'the checkout'\n")
    assert is_perfguard_checkout(tmp_path / "tree")
    (root,) = build_bundle(tmp_path / "lib", tree=tmp_path / "tree")
    assert root == tmp_path / "lib" / "perfguard" / "benchmarks"
    assert "the checkout" in (root / "catalog.py").read_text()
    assert (tmp_path / "lib" / "perfguard" / "worker" / "serve.py").is_file()


@pytest.mark.parametrize("former", ["ops", "kernels"])
def test_an_older_checkout_has_its_factories_where_todays_catalog_looks_for_them(tmp_path, former):
    benchmarks = tmp_path / "tree" / "perfguard" / "benchmarks"
    (benchmarks / former).mkdir(parents=True)
    (benchmarks / "catalog.py").write_text("")
    (benchmarks / former / "__init__.py").write_text("")
    (benchmarks / former / "linear.py").write_text(f"from perfguard.benchmarks.{former}.phases import made as linear\n")
    (benchmarks / former / "phases.py").write_text("made = 'a factory of the checkout'\n")
    build_bundle(tmp_path / "lib", tree=tmp_path / "tree")
    asked = "from perfguard.benchmarks import ops; print(ops.linear)"
    done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path / "lib", capture_output=True, text=True)
    assert done.stdout == "a factory of the checkout\n", done.stderr


def test_of_a_perfguard_checkout_the_kernels_are_under_test_with_their_sources(tmp_path):
    package = tmp_path / "tree" / "perfguard"
    for name in ("benchmarks", "kernels"):
        (package / name).mkdir(parents=True)
    (package / "benchmarks" / "catalog.py").write_text("")
    (package / "kernels" / "focal_loss.cpp").write_text("// the checkout's\n")
    roots = build_bundle(tmp_path / "lib", tree=tmp_path / "tree")
    assert [root.name for root in roots] == ["benchmarks", "kernels"]
    assert (roots[1] / "focal_loss.cpp").read_text() == "// the checkout's\n"


def test_a_bundle_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasurementError, match="the worker bundle cannot be written to"):
        build_bundle(tmp_path / "file" / "lib", tree=None)


def test_a_checkout_behind_a_link_is_not_the_trees(tmp_path):
    (tmp_path / "private" / "benchmarks").mkdir(parents=True)
    (tmp_path / "private" / "benchmarks" / "catalog.py").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "perfguard").symlink_to(tmp_path / "private")
    assert not is_perfguard_checkout(tmp_path / "tree")
    assert build_bundle(tmp_path / "lib", tree=tmp_path / "tree") == ()


def test_a_tree_of_folders_without_an_end_is_refused_in_a_sentence(tmp_path, deep_folders):
    benchmarks = tmp_path / "tree" / "perfguard" / "benchmarks"
    benchmarks.mkdir(parents=True)
    (benchmarks / "catalog.py").touch()
    deep_folders(tmp_path / "tree" / "perfguard" / "kernels")
    with pytest.raises(MeasurementError, match="cannot be written"):
        build_bundle(tmp_path / "lib", tree=tmp_path / "tree")
