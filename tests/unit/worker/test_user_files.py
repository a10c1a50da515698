from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest

import perfguard.worker
from perfguard.worker.profiling.lines import UserFiles

WORKER = Path(perfguard.worker.__file__).parent


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The working directory; not on the import path."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" in entry])
    return folder


def name_of(path, module="train"):
    return UserFiles().name(str(path), module)


def test_a_file_is_named_from_the_working_directory(project):
    assert name_of(project / "train.py") == "train.py"
    assert name_of(project / "examples" / "vision" / "train.py") == "examples/vision/train.py"
    assert name_of("examples/train.py") == "examples/train.py"


def test_a_file_is_named_as_it_is_imported(project, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(project), str(project / "src"), *sys.path])
    assert name_of(project / "src" / "net" / "layers.py") == "net/layers.py"
    assert name_of(project / "train.py") == "train.py"


def test_a_script_elsewhere_is_named_from_its_own_folder(project, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path / "scripts"), *sys.path])
    assert name_of(tmp_path / "scripts" / "train.py") == "train.py"


def test_a_file_outside_all_of_them_has_its_whole_path(project, tmp_path):
    assert name_of(tmp_path / "elsewhere.py") == str(tmp_path / "elsewhere.py")
    assert name_of(tmp_path / "project-2" / "train.py") == str(tmp_path / "project-2" / "train.py")


def test_a_file_behind_a_link_is_named_where_it_really_is(project, tmp_path):
    (tmp_path / "link").symlink_to(project)
    assert name_of(tmp_path / "link" / "train.py") == "train.py"


def test_the_root_of_all_folders_shortens_nothing(project, monkeypatch):
    monkeypatch.chdir("/")
    assert name_of("/home/user/train.py") == "/home/user/train.py"


def test_a_program_may_run_in_a_folder_that_is_gone(project):
    project.rmdir()
    assert name_of("/home/user/train.py") == "/home/user/train.py"


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("<string>", "__main__"),
        ("<frozen importlib._bootstrap>", "importlib._bootstrap"),
        (os.__file__, "os"),
        (f"{sysconfig.get_path('stdlib')}/asyncio/events.py", "asyncio.events"),
        ("/opt/env/lib/python3.11/site-packages/timm/layers.py", "timm.layers"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy.core"),
        ("/home/dev/pytorch/torch/nn/functional.py", "torch.nn.functional"),
        ("/tmp/torchinductor_user/ab/cab.py", "torch._inductor.runtime.compile_tasks.cab"),
        (WORKER / "scripts.py", "perfguard.worker.profiling.scripts"),
        (WORKER.parents[1] / "start.py", "__main__"),
    ],
)
def test_libraries_and_what_runs_the_program_have_no_name(path, module):
    assert name_of(path, module) is None


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("/home/user/torch_models/net.py", "torch_models.net"),
        ("/home/user/site_packages.py", "site_packages"),
        ("/home/user/train.py", None),
        (WORKER.parent / "benchmarks" / "steps" / "resnet.py", "perfguard.benchmarks.steps.resnet"),
    ],
)
def test_everything_else_is_the_users(path, module):
    assert name_of(path, module) is not None
