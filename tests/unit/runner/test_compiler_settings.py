"""Files that set variables of torch's compiler."""

from __future__ import annotations

import pytest

from perfguard.runner.arms.compiler_settings import sets_compiler_variables

ENVIRON = "os.environ"
"""On a line of its own: else this file would set such variables for gates of this repository."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ENVIRON + '["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"', True),
        (ENVIRON + ".setdefault('TORCHDYNAMO_DISABLE', '1')", True),
        (ENVIRON + '["TORCH_COMPILE_DISABLE"] = "1"', True),
        ('os.environ["OMP_NUM_THREADS"] = "1"', False),
        ("# TORCHINDUCTOR_MAX_AUTOTUNE is read elsewhere", False),
    ],
)
def test_a_file_that_sets_one_is_found(tmp_path, text, found):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(f"import os\n{text}\n")
    assert sets_compiler_variables([str(tmp_path)]) is found


def test_environments_and_hidden_folders_are_not_looked_into(tmp_path):
    for folder in ("venv/lib", ".cache"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text(ENVIRON + '["TORCHINDUCTOR_X"] = "1"')
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    assert not sets_compiler_variables([str(tmp_path), str(tmp_path / "absent")])
