"""Records of what a case runs: equal where a change does not reach it, different or unproven where it does."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import SOURCE

TREE = {
    "bench.py": """\
import importlib
import importlib.metadata
import json
import os
import pathlib
import pkgutil
import threading

import nets.config
import nets.patches
from nets.helpers import Meta, scaled, twice
from nets.model import Model

HERE = pathlib.Path(__file__).parent


def work():
    model, settings = Model(), json.loads((HERE / "nets" / "data.json").read_text())
    text = compile((HERE / "nets" / "formula.txt").read_text(), "formula", "eval")
    raw = pkgutil.get_data("nets", "raw.dat")
    names = sorted(os.listdir(HERE / "nets" / "plugins"))
    found = [name[:-3] for name in names if name[0] != "_" and name.endswith(".py")]
    plugins = [importlib.import_module("nets.plugins." + name) for name in found]
    entries = [entry.load() for entry in importlib.metadata.entry_points(group="nets.extras")]
    try:
        from nets import fast
    except ImportError:
        fast = None
    results = []

    def in_thread():
        results.append(twice(2))

    def call():
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
        value = scaled(model(settings["size"])) + eval(text) + len(raw) + Meta.total() + results[-1]
        value += sum(plugin.extra() for plugin in plugins) + sum(entry() for entry in entries)
        return float(value + (fast.more() if fast else 0) + nets.config.STATE["level"] + abs(-1))

    return call


def unused():
    return 1
""",
    "nets/__init__.py": "VERSION = 1\n",
    "nets/config.py": "STATE = {'level': 1}\n",
    "nets/patches.py": "import math\n",
    "nets/helpers.py": """\
import functools

FACTOR = 2


def traced(function):
    @functools.wraps(function)
    def inner(*values):
        return function(*values)

    return inner


@traced
def scaled(value, by=FACTOR):
    return value * by


def made(step):
    def inner(value):
        return value + step

    return inner


twice = made(2)


class Base:
    weight = 3

    def __add__(self, other):
        return self.weight + other


class Meta(Base):
    @staticmethod
    def total():
        return sum(each for each in range(3)) + (Meta() + 1)
""",
    "nets/model.py": """\
from nets.helpers import Base


class Model(Base):
    def __init__(self):
        self.layers = [lambda value: value + 1]

    @property
    def depth(self):
        return len(self.layers)

    def __call__(self, value, *, bias=0):
        for layer in self.layers:
            value = layer(value)
        return value + self.depth + bias
""",
    "nets/other.py": "def other():\n    return 5\n",
    "nets/data.json": '{"size": 4}\n',
    "nets/formula.txt": "1 + 1\n",
    "nets/raw.dat": "abc",
    "nets/plugins/__init__.py": "",
    "nets/plugins/first.py": "def extra():\n    return 1\n",
    "extras.py": "def one():\n    return 1\n",
    "extras-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: extras\nVersion: 1.0\n",
    "extras-1.0.dist-info/entry_points.txt": "[nets.extras]\none = extras:one\n",
}
ASK = """
import json, sys
from perfguard.worker.proof import prove
case = {"id": "work", "target": "bench.py:work", "parameters": {}, "phase": "forward"}
print(json.dumps(prove(case, seed=1, roots=[sys.argv[1]])))
"""


def written(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def proof_of(tree, ask=ASK):
    variables = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{SOURCE}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ask, str(tree)], cwd=tree, env=variables, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    found = proof_of(written(tmp_path_factory.mktemp("baseline-at-a-longer-path"), TREE))
    assert found["problem"] is None
    return found


@pytest.fixture
def after(tmp_path):
    """The record of the tree with changes: of a text in a file, or of whole files."""

    def make(*replacements, **files):
        changed = {**TREE, **{name.replace("__", "/"): text for name, text in files.items()}}
        for name, old, new in replacements:
            assert old in changed[name]
            changed[name] = changed[name].replace(old, new)
        return proof_of(written(tmp_path / "tree", changed))

    return make


def test_the_record_is_the_same_where_torch_is_imported_before(before, tmp_path):
    pytest.importorskip("torch")
    assert proof_of(written(tmp_path, TREE), "import torch\n" + ASK) == before


def names(found):
    return {(path, name) for path, name, _ in found["executed"]}


def test_functions_bodies_and_files_are_recorded(before):
    assert {
        ("0:bench.py", "<module>"),
        ("0:nets/model.py", "Model.__call__" if sys.version_info >= (3, 11) else "__call__"),
        ("0:nets/plugins/first.py", "extra"),
        ("0:extras.py", "one"),
    } <= names(before)
    assert not any(path == "0:nets/other.py" or name == "unused" for path, name in names(before))
    read = {path for path, _ in before["read"]}
    assert {"0:nets/data.json", "0:nets/formula.txt", "0:nets/raw.dat", "0:nets/plugins"} <= read


@pytest.mark.parametrize(
    "change",
    [
        ("bench.py", "    return 1\n", "    return 2\n"),
        ("bench.py", "import json\n", "# more to say\n\n\nimport json\n"),
        ("nets/helpers.py", "    return value * by\n", "    # twice as much\n    return value * by\n"),
        ("nets/other.py", "return 5", "return 6"),
    ],
    ids=["a function that does not run", "a comment and other lines", "a comment inside", "another module"],
)
def test_a_change_that_the_case_does_not_reach_leaves_the_record_as_it_is(before, after, change):
    assert after(change) == before


@pytest.mark.parametrize(
    "change",
    [
        ("nets/helpers.py", "FACTOR = 2", "FACTOR = 3"),
        ("nets/helpers.py", "by=FACTOR", "by=3"),
        ("nets/helpers.py", "@traced\n", ""),
        ("nets/helpers.py", "        return function(*values)\n", "        return function(*values) + 0\n"),
        ("nets/helpers.py", "return value + step", "return value - step"),
        ("nets/helpers.py", "made(2)", "made(4)"),
        ("nets/helpers.py", "weight = 3", "weight = 4"),
        ("nets/helpers.py", "return self.weight + other", "return self.weight - other"),
        ("nets/helpers.py", "sum(each for", "sum(2 * each for"),
        ("nets/helpers.py", "range(3)", "range(4)"),
        ("nets/model.py", "value + 1]", "value + 2]"),
        ("nets/model.py", "bias=0", "bias=1"),
        ("nets/model.py", "return len(self.layers)", "return len(self.layers) + 1"),
        ("nets/model.py", "class Model(Base):", "class Model(Base, dict):"),
        ("nets/__init__.py", "VERSION = 1", "VERSION = 2"),
        ("nets/config.py", "'level': 1", "'level': 2"),
        ("nets/patches.py", "import math\n", "import builtins\nbuiltins.abs = lambda value: 7\n"),
        ("nets/patches.py", "import math\n", "import nets.helpers\nnets.helpers.scaled.cached = True\n"),
        ("nets/patches.py", "import math\n", "import sys\nsys.setrecursionlimit(5000)\n"),
        ("bench.py", "import nets.config\nimport nets.patches\n", "import nets.patches\nimport nets.config\n"),
        ("bench.py", "twice(2)", "twice(3)"),
        ("nets/data.json", "4", "5"),
        ("nets/formula.txt", "1 + 1", "1 + 2"),
        ("nets/raw.dat", "abc", "abcd"),
        ("nets/plugins/first.py", "return 1", "return 2"),
        ("extras.py", "return 1", "return 2"),
        ("extras-1.0.dist-info/entry_points.txt", "one = extras:one", "one = extras:one\ntwo = extras:one"),
    ],
    ids=lambda change: f"{change[0]}: {change[2].splitlines()[0] if change[2] else 'no decorator'}",
)
def test_a_change_that_the_case_reaches_changes_the_record(before, after, change):
    assert after(change) != before


@pytest.mark.parametrize(
    "files",
    [
        {"nets__fast.py": "def more():\n    return 1\n"},
        {"nets__plugins__second.py": "def extra():\n    return 2\n"},
        {"nets__plugins__notes.txt": "nothing\n"},
    ],
    ids=["a module that was optional", "a further plug-in", "a file in a folder that is listed"],
)
def test_a_new_file_that_the_case_finds_changes_the_record(before, after, files):
    assert after(**files) != before


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("nets/patches.py", "import math\n", "import subprocess\nsubprocess.run(['true'])\n"), "processes"),
        (("nets/patches.py", "import math\n", "import os\nos.system('true')\n"), "processes"),
        (("nets/patches.py", "import math\n", "import sys\nsys.setprofile(None)\n"), "profiled"),
        (("bench.py", "    results = []\n", "    raise ValueError('no')\n"), "failed"),
        (("bench.py", "    results = []\n", "    os._exit(0)\n"), "ended"),
    ],
)
def test_what_cannot_be_followed_is_not_proven(after, change, problem):
    assert after(change)["problem"] == problem


def test_what_was_imported_before_the_case_is_not_proven(after):
    assert after(**{"sitecustomize.py": "import builtins\n"})["problem"] == "preloaded"


def test_native_code_of_the_tree_is_not_proven(tmp_path):
    origins = (importlib.util.find_spec(name).origin or "" for name in ("_json", "_csv", "_bisect", "_ctypes"))
    library = next(origin for origin in origins if origin.endswith(".so"))
    load = "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path(__file__).parent / 'native.so'))\n"
    tree = written(tmp_path, {**TREE, "nets/patches.py": load})
    shutil.copy(library, tree / "nets" / "native.so")
    assert proof_of(tree)["problem"] == "native"
