from __future__ import annotations

import pytest

from perfguard.runner.process.answers import Prepared, Ready, decoded
from perfguard.runner.process.worker_process import WorkerFailure

READY = {"reply": "ready", "affinity_before": [0], "affinity_after": [0]}
PREPARED = {"reply": "prepared", "digest": 1.0}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({**READY, "import_s": 1e308}, Ready),
        ({**PREPARED, "instance_s": -1.0}, Prepared),
        ({**PREPARED, "instance_s": 1e308}, Prepared),
        ({**PREPARED, "digest": "1.0"}, Prepared),
    ],
)
def test_what_is_out_of_its_range_fails_the_worker(answer, kind):
    with pytest.raises(WorkerFailure, match="is not of the form that it has"):
        decoded(answer, kind)


def test_what_is_within_it_is_taken():
    assert decoded({**PREPARED, "instance_s": 0.5}, Prepared).instance_s == 0.5
