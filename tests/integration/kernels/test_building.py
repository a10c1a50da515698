"""Operators are compiled once for a machine, whatever happens to a build; without a compiler torch's ops run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

ASK = """
import warnings
warnings.simplefilter("always")
import torch
from perfguard.kernels import sigmoid_focal_loss
logits = torch.linspace(-30, 30, 700).requires_grad_()
loss = sigmoid_focal_loss(logits, torch.linspace(0, 1, 700), gamma=1.5, reduction="sum")
loss.backward()
print(round(loss.item(), 2), round(logits.grad.abs().sum().item(), 3))
"""
ANSWER = "121.26 14.732"  # in float64 by the reference formula


def starting(cache, **environment):
    variables = {**os.environ, "PERFGUARD_KERNEL_CACHE": str(cache), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", ASK], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def asked(cache, **environment):
    """What a fresh process printed, and what it said."""
    process = starting(cache, **environment)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert printed.strip() == ANSWER
    return said


def libraries(cache):
    return sorted(path.name for path in cache.glob("*.so"))


@pytest.fixture
def compiler(tmp_path):
    """A compiler of the test's own: what is in front of the real one, if it comes to that."""

    def write(script):
        path = tmp_path / "compiler"
        path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "a compiler of the test" && exit\n{script}\n')
        path.chmod(0o755)
        return str(path)

    return write


def test_a_second_process_finds_what_the_first_one_compiled(library, kernel_cache):
    assert "compiling" not in asked(kernel_cache)


@pytest.mark.long
def test_another_instruction_set_has_a_library_of_its_own(library, kernel_cache):
    asked(kernel_cache, ATEN_CPU_CAPABILITY="avx2")
    compiled = [name for name in libraries(kernel_cache) if "-avx2-" in name]
    assert len(compiled) == 1
    assert "compiling" not in asked(kernel_cache, ATEN_CPU_CAPABILITY="avx2")
    assert {compiled[0], library.name} <= set(libraries(kernel_cache))


@pytest.fixture(scope="module")
def library(kernel_cache):
    """What this machine's compiler makes."""
    asked(kernel_cache)
    (name,) = (name for name in libraries(kernel_cache) if "-avx2-" not in name)
    return kernel_cache / name


@pytest.fixture
def quick_compiler(library, compiler):
    """Gives that library at once."""

    def write(before=""):
        return compiler(f'{before}\nwhile [ "$1" != -o ]; do shift; done\nexec cp {library} "$2"')

    return write


def test_two_processes_at_once_compile_once(tmp_path, quick_compiler):
    environment = {"CXX": quick_compiler("sleep 1")}
    together = [starting(tmp_path / "cache", **environment) for _ in range(2)]
    said = "".join(process.communicate(timeout=300)[1] for process in together)
    assert [process.returncode for process in together] == [0, 0], said
    assert said.count("perfguard: compiling") == 1
    assert len(libraries(tmp_path / "cache")) == 1


def test_after_a_killed_build_the_next_process_compiles(tmp_path, quick_compiler):
    started, cache = tmp_path / "started", tmp_path / "cache"
    slow = quick_compiler(f"if [ ! -e {started} ]; then touch {started}; exec sleep 600; fi")
    process = starting(cache, CXX=slow)
    deadline = time.monotonic() + 120
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert started.exists()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    try:
        asked(cache, CXX=slow)
    finally:
        subprocess.run(["pkill", "-f", "sleep 600"], check=False)
    assert len(libraries(cache)) == 1


@pytest.mark.long
def test_a_library_that_was_cut_off_is_compiled_again(tmp_path, quick_compiler):
    chosen = {"CXX": quick_compiler()}
    asked(tmp_path / "cache", **chosen)
    for path in (tmp_path / "cache").glob("*.so"):
        path.write_bytes(path.read_bytes()[:1000])
    assert "compiling" in asked(tmp_path / "cache", **chosen)
    assert "compiling" not in asked(tmp_path / "cache", **chosen)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "no C++ compiler"),
        ("echo 'focal_loss.cpp:1: error: too hard' >&2; exit 1", "ended with 1: focal_loss.cpp:1: error: too hard"),
        ("exit 0", "made no library"),
    ],
    ids=["no compiler", "a failing one", "one that does nothing"],
)
def test_where_it_cannot_be_compiled_torchs_ops_run_and_a_warning_says_why(tmp_path, compiler, script, words):
    said = asked(tmp_path / "cache", CXX=compiler(script) if script else str(tmp_path / "none"))
    assert "KernelWarning" in said
    assert words in said
    assert libraries(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written_is_named_with_its_variable(tmp_path):
    (tmp_path / "file").write_text("")
    said = asked(tmp_path / "file")
    assert "KernelWarning" in said
    assert "PERFGUARD_KERNEL_CACHE" in said
