from __future__ import annotations

import pytest

from perfguard.errors import UsageError
from perfguard.runner.trusted_rules import require_own_folder


def test_a_folder_of_perfguards_own_that_the_base_has_too_is_no_change(project):
    project.write(".perfguard/old.txt", "there all along")
    before = project.commit("mistake")
    after = project.git("commit-tree", "-p", before, "-m", "next", f"{before}^{{tree}}")
    require_own_folder(project.path, before, after)
    with pytest.raises(UsageError, match=r"brings '\.perfguard/old\.txt'"):
        require_own_folder(project.path, f"{before}^", after)
