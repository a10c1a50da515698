"""How often a worker is woken that waits on the host that measures; `make proof-fleet` measures its CPU time, too."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.long  # They wait; the queue under fire is tested beside


def test_an_idle_worker_is_woken_once_a_second_at_most(server):
    from tests.proof.fleet_at_scale import idle_cost

    assert idle_cost(server, settles_s=30, seconds=30)["wake_ups_per_s"] <= 1


def test_a_worker_whose_gate_measures_is_not_woken(server):
    from tests.proof.fleet_at_scale import measuring_cost

    assert measuring_cost(server, seconds=30)["wake_ups"] == 0
