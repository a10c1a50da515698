"""Files that a benchmark may import, by its sources."""

from __future__ import annotations

import pytest

from perfguard.runner import imports
from perfguard.runner.imports import ImportReader, OpaqueSourceError, importable_files

TREE = {
    "bench.py": "import nets.model\nfrom nets import helpers as other\n\n\ndef work():\n    import late\n",
    "nets/__init__.py": "",
    "nets/model.py": "import torch\nfrom . import layers\nfrom .deep.inner import *\n",
    "nets/layers.py": "from ..nets.base import Base\n",
    "nets/base.py": "",
    "nets/helpers.py": "def function():\n    model.eval()\n    torch.compile(model)\n",
    "nets/unused.py": "",
    "nets/deep/__init__.py": "from .more import *\n",
    "nets/deep/inner.py": "",
    "nets/deep/more.py": "",
    "late.py": "",
}


@pytest.fixture
def tree(tmp_path):
    def make(**changed):
        for name, text in {**TREE, **{key.replace("__", "/"): text for key, text in changed.items()}}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return [tmp_path]

    return make


def names(found):
    return {name.partition(":")[2] for name in found}


def test_all_that_imports_lead_to_is_found_wherever_they_stand(tree):
    assert names(importable_files(ImportReader(tree()), "bench.py:work")) == TREE.keys() - {"nets/unused.py"}


def test_a_module_brings_the_packages_around_it(tree):
    assert names(importable_files(ImportReader(tree()), "nets.deep.inner:work")) == {
        "nets/__init__.py",
        "nets/deep/__init__.py",
        "nets/deep/inner.py",
        "nets/deep/more.py",
    }


def test_a_file_that_takes_the_place_of_an_installed_module_counts(tree):
    assert "torch.py" in names(importable_files(ImportReader(tree(**{"torch.py": ""})), "bench.py:work"))


def test_a_star_brings_modules_and_packages(tree):
    roots = tree(**{"star.py": "from nets.deep import *\n"})
    for name in ("more", "extra"):
        (roots[0] / "nets" / "deep" / name).mkdir()
        (roots[0] / "nets" / "deep" / name / "__init__.py").touch()
    found = names(importable_files(ImportReader(roots), "star.py:work"))
    assert {"nets/deep/inner.py", "nets/deep/more/__init__.py", "nets/deep/extra/__init__.py"} <= found


@pytest.mark.parametrize(
    "text", ["from importlib import import_module as load\n", "from builtins import __import__ as load\n"]
)
def test_another_name_hides_no_dynamic_import(tree, text):
    with pytest.raises(OpaqueSourceError, match="uses"):
        importable_files(ImportReader(tree(**{"late.py": text})), "bench.py:work")


def test_native_code_under_a_star_is_opaque(tree):
    with pytest.raises(OpaqueSourceError, match="native"):
        importable_files(ImportReader(tree(**{"star.py": "from nets import *\n", "nets/fast.so": ""})), "star.py:work")


def test_what_python_imports_by_itself_counts(tree):
    assert "sitecustomize.py" in names(
        importable_files(ImportReader(tree(**{"sitecustomize.py": ""})), "bench.py:work")
    )


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module(name)\n",
        "from importlib import import_module\nimport_module(name)\n",
        "__import__(name)\n",
        "exec(text)\n",
        "import sys\nsys.path.append('there')\n",
        "import runpy\nrunpy.run_path('there')\n",
        "for entry in importlib.metadata.entry_points(group='mine'):\n    entry.load()\n",
        "text = open('other.py').read()\n",
        "import pathlib\ntexts = [path.read_text() for path in pathlib.Path('.').rglob('*')]\n",
        "this is no Python\n",
    ],
)
def test_what_is_imported_by_other_means_cannot_be_told(tree, text):
    with pytest.raises(OpaqueSourceError):
        importable_files(ImportReader(tree(nets__base=text, **{"nets/base.py": text})), "bench.py:work")


def test_native_code_cannot_be_told(tree):
    with pytest.raises(OpaqueSourceError):
        importable_files(ImportReader(tree(**{"nets/base.cpython-311-x86_64-linux-gnu.so": ""})), "bench.py:work")


def test_suites_of_other_tools_cannot_be_told(tree):
    with pytest.raises(OpaqueSourceError):
        importable_files(ImportReader(tree()), "asv:benchmarks:time_it")


def test_sources_larger_than_a_parser_reads_in_a_while_are_not_read(tree, monkeypatch):
    monkeypatch.setattr(imports, "_MOST_BYTES", 1000)
    monkeypatch.setattr(imports, "MOST_BYTES_TOGETHER", 2000)
    large = {f"big{number}.py": "x = 1\n" * 150 for number in range(3)}
    reader = ImportReader(tree(**large, **{"all.py": "import big0\nimport big1\nimport big2\n"}))
    with pytest.raises(OpaqueSourceError, match="larger than is read"):
        importable_files(reader, "all.py:work")
    with pytest.raises(OpaqueSourceError, match="no plain file"):
        importable_files(ImportReader(tree(**{"huge.py": "x = 1\n" * 200})), "huge.py:work")
