from __future__ import annotations

import sys

import pytest

from perfguard.errors import ArmError
from perfguard.records.facts import fact
from perfguard.records.plan import ResolvedArm
from perfguard.records.run import Arm
from perfguard.runner.arms.attestation import Attested, attested, compare_attested
from perfguard.runner.arms.resolve import parse_arm
from perfguard.worker.attest import attest


def arm(text="git:main", role=Arm.BASELINE):
    return ResolvedArm(
        role=role,
        spec=parse_arm(text),
        interpreter="/py",
        tree="/tree",
        bundle="/lib",
        code_roots=("/tree",),
        source_id="s1",
        commit=None,
        environment=(),
    )


def report(**fields):
    return {"modules": [], "foreign": [], "shadowed": [], "distributions": ["a==1"], "torch_file": None, **fields}


READY = {"interpreter": {"executable": "/py"}}


def found(**fields):
    defaults = {
        "text": "git:main",
        "source_id": "s1",
        "interpreter": "/py",
        "code": (("work.py", "1"),),
        "distributions": ("a==1",),
        "environment": (),
        "parameters": (),
        "torch_file": None,
    }
    return Attested(**{**defaults, **fields})


def test_what_an_arm_ran_is_recorded():
    modules = [{"name": "b", "path": "b.py", "sha256": "2"}, {"name": "a", "path": "a.py", "sha256": "1"}]
    result = attested(arm("env:A=1"), READY, report(modules=modules))
    assert result.code == (("a.py", "1"), ("b.py", "2"))
    assert (result.interpreter, result.environment) == ("/py", (("A", "1"),))


def test_code_of_the_other_arm_is_refused():
    with pytest.raises(ArmError, match=r"the baseline imported 'work' from the other arm's tree \('work.py'\)"):
        attested(arm(), READY, report(foreign=[{"name": "work", "path": "work.py", "sha256": "1"}]))


def test_an_installed_copy_of_the_trees_code_is_refused():
    with pytest.raises(ArmError, match="imported 'work' from '/site/work.py', not from its own tree 'git:main'"):
        attested(arm(), READY, report(shadowed=[{"name": "work", "path": "/site/work.py"}]))


def test_the_same_thing_twice_is_called_so():
    assert compare_attested(found(), found()) == [fact("arms.same_code")]


def test_trees_that_differ_without_being_imported_are_refused():
    with pytest.raises(ArmError, match="no selected case imports anything"):
        compare_attested(found(code=()), found(code=(), source_id="s2", text="dir:."))


@pytest.mark.parametrize(
    "difference",
    [
        {"interpreter": "/other"},
        {"environment": (("A", "1"),)},
        {"parameters": (("optimizer", "fused"),)},
        {"distributions": ("a==2",)},
    ],
)
def test_trees_that_are_not_imported_do_not_matter_where_something_else_differs(difference):
    notes = compare_attested(found(code=()), found(code=(), source_id="s2", **difference))
    assert "arms.same_code" not in [note.code for note in notes]


def test_files_that_differ_are_listed():
    notes = compare_attested(
        found(code=(("a.py", "1"), ("gone.py", "1"), ("same.py", "1"))),
        found(code=(("a.py", "2"), ("new.py", "1"), ("same.py", "1"))),
    )
    assert notes == [fact("arms.files_differ", files=("a.py", "gone.py", "new.py"), more=None)]


def test_packages_in_other_versions_are_named_torch_first_and_what_only_one_side_has_is_counted():
    (note,) = compare_attested(
        found(distributions=("gone==1", "numpy==1.26", "pip==24", "same==1", "torch==2.8.0")),
        found(distributions=("new==1", "newer==1", "numpy==2.0", "pip==25", "same==1", "torch==2.13.0")),
    )
    assert note.code == "arms.packages_differ"
    assert note.values == {
        "changed": ("numpy 1.26 → 2.0", "torch 2.8.0 → 2.13.0", "pip 24 → 25"),
        "more": None,
        "only_in_baseline": 1,
        "only_in_candidate": 2,
    }


def test_long_lists_are_cut():
    many = tuple((f"f{number:02}.py", "1") for number in range(20))
    (note,) = compare_attested(found(code=()), found(code=many))
    shown = len(note.values["files"])
    assert 0 < shown < 20
    assert note.values["more"] == 20 - shown


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree with one imported module, and what else may lie in it."""
    root = tmp_path / "tree"
    paths = {
        "attested_work": root / "attested_work.py",
        "attested_installed": root / ".venv" / "lib" / "python3" / "site-packages" / "attested_installed.py",
        "attested_bundle": root / ".perfguard" / "runs" / "r" / "arms" / "a" / "lib" / "attested_bundle.py",
    }
    for name, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
        sys.modules[name].__file__ = str(path)
    return root


def names(modules):
    return [module["name"] for module in modules]


def test_only_source_of_the_tree_counts_not_environments_or_runs_inside_it(tree, tmp_path):
    assert names(attest([str(tree)], [])["modules"]) == ["attested_work"]
    assert names(attest([str(tmp_path / "elsewhere")], [str(tree)])["foreign"]) == ["attested_work"]


def test_native_sources_beside_imported_files_count_too(tree):
    before = attest([str(tree)], [])["modules"]
    (tree / "kernel.cpp").write_text("// one")
    first = attest([str(tree)], [])["modules"]
    (tree / "kernel.cpp").write_text("// two")
    second = attest([str(tree)], [])["modules"]
    assert [module["path"] for module in first if module not in before] == ["kernel.cpp"]
    assert [module["path"] for module in second if module not in first] == ["kernel.cpp"]


def test_a_worktree_inside_the_other_tree_is_its_own(tree):
    inside = tree / ".perfguard" / "runs" / "r" / "arms" / "a"
    result = attest([str(inside)], [str(tree)])
    assert names(result["modules"]) == ["attested_bundle"]
    assert names(result["foreign"]) == ["attested_work"]


def test_a_copy_installed_inside_the_tree_shadows_it(tree):
    (tree / "attested_installed").mkdir()
    (tree / "attested_installed" / "__init__.py").write_text("")
    assert names(attest([str(tree)], [])["shadowed"]) == ["attested_installed"]


def test_an_interpreter_that_lives_in_the_tree_is_not_its_source(tree, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tree / "conda"))
    path = tree / "conda" / "lib" / "attested_stdlib.py"
    path.parent.mkdir(parents=True)
    path.write_text("")
    monkeypatch.setitem(sys.modules, "attested_stdlib", type(sys)("attested_stdlib"))
    sys.modules["attested_stdlib"].__file__ = str(path)
    assert names(attest([str(tree)], [])["modules"]) == ["attested_work"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"modules": [{"path": 1, "sha256": 2}]},
        {"modules": [{"path": {}, "sha256": []}]},
        {"distributions": [1, {}]},
        {"foreign": 5},
        {"shadowed": [["a"]]},
        {"torch_file": 1.5},
    ],
)
def test_what_a_worker_says_in_another_form_is_refused_in_a_sentence(wrong):
    with pytest.raises(ArmError, match="not of the form that it has"):
        attested(arm(), READY, report(**wrong))


def test_a_path_that_a_worker_makes_up_stays_on_its_line():
    with pytest.raises(ArmError) as refused:
        attested(arm(), READY, report(shadowed=[{"name": "work", "path": "\n::error::y"}]))
    assert "\n" not in str(refused.value)
