"""The command line on real PyTorch work, as a user types it. Budgets are short: only large effects are asserted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cpu_features import HAS_BF16
from tests.tiny_projects import noted, outcomes

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

REPOSITORY = Path(__file__).parents[2]
STACKS = "PERFGUARD_ENVS"
"""Where environments such as that of IPEX lie."""
NORM = "kernel.layer_norm[tokens=128,dtype=fp32,phase=forward+backward]"
LINEAR = "kernel.linear[m=128,dtype=fp32,phase=forward+backward]"
NARROW = "kernel.matmul[size=256,dtype=bf16,phase=forward]"
FAST = ("--sample-s", "0.005", "--samples", "4", "--max-blocks", "3", "--no-progress")
FOR_HUGE_EFFECTS = ("--sample-s", "0.002", "--samples", "2", "--max-blocks", "8", "--budget", "400", "--no-progress")
"""Five quiet blocks decide, and end the measurement; beside other work it takes some more."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of this repository's committed state, as a newcomer has it."""
    place = tmp_path_factory.mktemp("clone") / "perfguard"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    if head.returncode != 0:
        pytest.skip("this is not a git checkout, so there is nothing to clone")
    subprocess.run(["git", "clone", "-q", "--shared", str(REPOSITORY), str(place)], check=True)
    # Blocks as short as these vary by more than 5 % where other work runs, and would then be advisory.
    (place / "perfguard.toml").write_text("max_block_sd = 0.5\n")
    return place


def perfguard(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command line in the clone, whatever else of perfguard is on this host or set."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PERFGUARD_") or key == STACKS}
    temporary = checkout.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    own = {"TMPDIR": str(temporary), "PYTHONPATH": str(REPOSITORY), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, "-m", "perfguard", *arguments],
        cwd=checkout,
        env={**kept, **own, **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_a_gate_of_the_same_code_is_never_red_and_leaves_files_that_pyperf_reads(checkout: Path) -> None:
    arms = ("--baseline", "git:HEAD", "--measure-anyway")
    done = perfguard(checkout, "gate", *arms, "-c", NORM, "-c", LINEAR, *FAST, "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert set(outcomes(result)) == {NORM, LINEAR}
    assert result["gate"]["identical"]
    assert result["gate"]["blocks_total"] > 0

    folder = Path(result["folder"])
    attested = json.loads((folder / "arms.json").read_text())
    paths = {path for path, _ in attested["candidate"]["code"]}
    assert "ops.py" in paths
    for name in ("baseline.json", "candidate.json"):
        stats = subprocess.run(
            [sys.executable, "-m", "pyperf", "stats", str(folder / name)], capture_output=True, text=True
        )
        assert stats.returncode == 0, stats.stderr
        assert LINEAR in stats.stdout
    assert not (folder / "arms").exists()


BEFORE_THE_ROOMS = "f79a18b"
"""The last commit of this repository whose benchmarks lay in `kernels` and `models`, and imported `perfguard.model`."""
FORMER_NAMES = {
    "perfguard.benchmarks.networks": "perfguard.benchmarks.models",
    "perfguard.records.spec": "perfguard.model.spec",
}

FORMER_MODULES = {"ops.py": "kernels/normalization.py", "steps.py": "steps/training.py"}


def with_former_names(checkout: Path) -> str:
    """A commit like HEAD whose benchmarks have the names that they had before 0.2, as shallow clones hold no other."""
    tree = checkout.parent / "former"
    git(checkout, "worktree", "add", "-q", "--detach", str(tree))
    benchmarks = tree / "perfguard" / "benchmarks"
    for module, place in FORMER_MODULES.items():
        (benchmarks / place).parent.mkdir()
        (benchmarks / module).rename(benchmarks / place)
    (benchmarks / "networks").rename(benchmarks / "models")
    for file in benchmarks.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for now, former in FORMER_NAMES.items():
            text = text.replace(now, former)
        file.write_text(text, encoding="utf-8")
    git(tree, "add", "-A")
    git(tree, "-c", "user.name=Test", "-c", "user.email=test@example.org", "commit", "-q", "-m", "former names")
    return git(tree, "rev-parse", "HEAD")


def git(place: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def is_known(checkout: Path, revision: str) -> bool:
    asked = subprocess.run(["git", "cat-file", "-e", f"{revision}^{{commit}}"], cwd=checkout, capture_output=True)
    return asked.returncode == 0


def test_a_revision_from_before_the_benchmarks_were_renamed_is_measured(checkout: Path) -> None:
    baseline = BEFORE_THE_ROOMS if is_known(checkout, BEFORE_THE_ROOMS) else with_former_names(checkout)
    done = perfguard(
        checkout, "gate", "--baseline", f"git:{baseline}", "--candidate", "git:HEAD", "-c", NORM, "--no-ops",
        "--sample-s", "0.01", "--samples", "2", "--max-blocks", "1", "--no-progress", "--format", "json",
    )  # fmt: skip
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    (verdict,) = result["gate"]["verdicts"]
    assert verdict["outcome"] == "inconclusive", verdict["reasons"]
    assert verdict["comparison"]["estimate"]["blocks"] == result["gate"]["blocks_total"] == 1
    attested = json.loads((Path(result["folder"]) / "arms.json").read_text())
    paths = {arm: {path for path, _ in facts["code"]} for arm, facts in attested.items()}
    assert {arm for arm, code in paths.items() if "ops/normalization.py" in code} == {"baseline"}
    assert not result["gate"]["identical"]


@pytest.mark.long
def test_slowdowns_are_red_exactly_where_they_are(checkout: Path) -> None:
    """One is injected; bf16 products lose their native instructions, on a CPU that has any."""
    slower = (LINEAR, NARROW) if HAS_BF16 else (LINEAR,)
    cases = [option for case in (NORM, *slower) for option in ("-c", case)]
    done = perfguard(
        checkout, "compare", "--baseline", "git:HEAD", "--candidate", "git:HEAD+env:ONEDNN_MAX_CPU_ISA=AVX2",
        *cases, "--inject", f"{LINEAR}=+60%", "--no-ops", *FOR_HUGE_EFFECTS, "--format", "json",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    found = outcomes(json.loads(done.stdout))
    assert found.pop(NORM) not in ("regressed", "failed")
    assert found == dict.fromkeys(slower, "regressed")


@pytest.mark.long
@pytest.mark.two_cpus
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs for a mask that can shrink")
def test_an_arm_whose_mask_shrinks_when_torch_is_imported_is_refused(checkout: Path) -> None:
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    done = perfguard(
        checkout, "compare", "--baseline", "git:HEAD", "--candidate", "git:HEAD+env:OMP_PROC_BIND=true",
        "-c", NORM, "--cpus", cpus, *FAST,
    )  # fmt: skip
    assert done.returncode == 3
    assert "OMP_PROC_BIND" in done.stderr
    assert "Traceback" not in done.stdout


def test_a_missing_stack_says_how_to_make_it(checkout: Path, tmp_path: Path) -> None:
    done = perfguard(checkout, "compare", "--candidate", "stack:ipex", "-c", NORM, *FAST, PERFGUARD_ENVS=str(tmp_path))
    assert done.returncode == 2
    assert "perfguard env create ipex" in done.stderr


@pytest.mark.ipex
def test_the_ipex_stack_runs_the_same_cases_through_ipex_optimize(checkout: Path) -> None:
    from perfguard.errors import ArmError
    from perfguard.runner.arms.venvs import ready_environment

    try:
        ready_environment("ipex")
    except ArmError as error:
        if os.environ.get("PERFGUARD_REQUIRE_IPEX"):
            raise
        pytest.skip(str(error))
    mobilenet = (
        "step.mobilenetv3[variant=small,image_size=96,batch=4,dtype=fp32,memory_format=channels_last,mode=eager]"
    )
    done = perfguard(
        checkout, "compare", "--baseline", "git:HEAD", "--candidate", "git:HEAD+stack:ipex", "-c", mobilenet,
        "--sample-s", "0.03", "--samples", "3", "--max-blocks", "1", "--no-ops", "--no-progress", "--format", "json",
    )  # fmt: skip
    assert done.returncode in (0, 1, 4), done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["arms"]["candidate"]["torch"].startswith("2.8.0")
    fingerprint = json.loads((Path(result["folder"]) / "fingerprint.json").read_text())
    assert fingerprint["software"]["ipex_version"].startswith("2.8.0")
    assert result["gate"]["blocks_total"] == 1
    (packages,) = noted(result, "arms.packages_differ")
    assert any("torch" in changed for changed in packages["values"]["changed"])
