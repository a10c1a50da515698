from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfguard.host.parsers.software import allocator, decode_software
from perfguard.host.probe import query_software
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import SoftwareFacts
from perfguard.worker import torch_env


def test_an_answer_becomes_facts() -> None:
    answer = {
        "python_version": "3.12.1",
        "torch_version": "2.13.0+cpu",
        "torch_debug": False,
        "intra_op_threads": 8,
        "openmp_runtimes": ["libgomp-a34.so.1"],
        "environment": {"OMP_NUM_THREADS": "8", "MALLOC_CONF": ""},
    }
    facts = decode_software(answer)
    assert (facts.python_version, facts.torch_debug, facts.intra_op_threads) == ("3.12.1", False, 8)
    assert facts.openmp_runtimes == ("libgomp-a34.so.1",)
    assert facts.environment == {"MALLOC_CONF": "", "OMP_NUM_THREADS": "8"}
    assert facts.mkl_version is None


@pytest.mark.parametrize("answer", [None, [], 3, "text"])
def test_an_answer_of_the_wrong_kind_is_a_problem(answer: object) -> None:
    assert decode_software(answer).problem is not None


def test_fields_of_the_wrong_kind_are_unknown() -> None:
    wrong: dict[str, object] = {name: object() for name in SoftwareFacts.__struct_fields__}
    assert decode_software(wrong) == SoftwareFacts()
    assert decode_software({"intra_op_threads": True, "torch_debug": 1, "torch_version": "\x1b"}) == SoftwareFacts()


def test_the_worker_gives_no_fact_that_the_model_has_no_field_for() -> None:
    known = set(SoftwareFacts.__struct_fields__)
    given = set(torch_env._torch_facts(object())) | {"python_version", "python_implementation", "glibc_version"}
    assert given | {"ipex_version", "numpy_version", "environment", "openmp_runtimes", "malloc_libraries"} <= known


def test_a_fact_that_fails_is_none_and_no_exception() -> None:
    class Hostile:
        def __getattr__(self, name: str) -> object:
            if name == "__config__":
                return type("Config", (), {"show": staticmethod(lambda: 1 // 0)})
            raise RuntimeError(name)

    facts = torch_env._torch_facts(Hostile())
    assert {value for value in facts.values() if value != []} == {None}


def test_paths_in_variables_are_cut_to_file_names() -> None:
    variables = {
        "LD_PRELOAD": "/home/alice/lib/libjemalloc.so.2:/opt/libx.so",
        "OMP_NUM_THREADS": "4",
        "HOME": "/home/alice",
        "SECRET_TOKEN": "t",
    }
    assert torch_env._environment(variables) == {"LD_PRELOAD": "libjemalloc.so.2:libx.so", "OMP_NUM_THREADS": "4"}


def test_the_allocator_is_the_one_that_is_loaded() -> None:
    assert allocator(SoftwareFacts(malloc_libraries=("libtcmalloc_minimal.so.4",))) == "tcmalloc"
    assert allocator(SoftwareFacts(malloc_libraries=())) == "system"
    assert allocator(SoftwareFacts()) is None


def test_an_interpreter_that_cannot_be_asked_is_a_problem(tmp_path: Path) -> None:
    assert query_software(tmp_path / "python").problem.code == "host.interpreter_not_started"
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho nonsense; echo no torch >&2; exit 7\n")
    broken.chmod(0o755)
    assert query_software(broken).problem == fact(
        "host.interpreter_failed", interpreter=str(broken), status=7, error="no torch"
    )


def test_an_interpreter_without_torch_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    facts = query_software(Path(sys.executable), environment={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert facts.problem.code == "host.interpreter_problem"
    assert "no torch here" in facts.problem.values["error"]
    assert facts.torch_version is None
    assert facts.python_version == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.torch
def test_a_real_interpreter_tells_its_stack() -> None:
    pytest.importorskip("torch")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"}
    facts = query_software(Path(sys.executable), environment=environment)
    assert facts.problem is None
    assert facts.torch_version is not None
    assert facts.aten_isa == "DEFAULT"
    assert facts.intra_op_threads == 1
    assert facts.environment is not None
    assert facts.environment["ATEN_CPU_CAPABILITY"] == "default"
    assert facts.flushes_denormals is False


@pytest.mark.torch
def test_the_module_prints_one_line_of_json() -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "perfguard.worker.torch_env"], capture_output=True, text=True, check=True, timeout=300
    )
    assert json.loads(done.stdout)["torch_version"]
    assert done.stdout.count("\n") == 1


def test_the_reporter_compiles_for_old_interpreters() -> None:
    source = Path(torch_env.__file__).read_text(encoding="utf-8")
    compile(source, "torch_env.py", "exec", dont_inherit=True)
    import ast

    ast.parse(source, feature_version=(3, 9))
    assert "import perfguard" not in source
    assert "from perfguard" not in source
