"""Which stored op counts a gate may use where this machine has no baseline."""

from __future__ import annotations

import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.gate.stored.lookup import op_counts_of_another_machine
from perfguard.host.probe import probe
from perfguard.store.op_counts import op_counts_file
from tests.op_count_rows import counts, ops
from tests.stored_baselines import CASE, record

ISA = "avx512_core_bf16"


@pytest.fixture
def loaded(tmp_path):
    return LoadedConfig(config=Config(), origins={}, project=tmp_path)


def counted(case_id=CASE, isa_class=ISA):
    return counts(ops("conv2d relu", 3), case_id=case_id, isa_class=isa_class)


def found(loaded, isa=ISA):
    return op_counts_of_another_machine(loaded, "quick", probe().machine_id, isa)


def test_a_machine_whose_libraries_choose_alike_is_found_with_its_record(loaded):
    record(loaded.project, "intel-x-1", counted())
    stored = found(loaded)
    assert (stored.info.machine_id, stored.info.seed) == ("intel-x-1", 7)
    assert stored.op_counts == {CASE: counted()}


def test_another_name_of_the_same_instruction_sets_is_the_same(loaded):
    record(loaded.project, "intel-x-1", counted(isa_class="avx10_1_512"))
    assert found(loaded, isa="avx512_core_fp16") is not None


def test_cases_that_were_counted_under_other_instruction_sets_are_left_out(loaded):
    record(loaded.project, "intel-x-1", counted(), counted("step.b", isa_class="avx2"))
    assert set(found(loaded).op_counts) == {CASE}


def test_of_several_machines_the_last_record_counts(loaded):
    record(loaded.project, "intel-a-1", counted(), created_at="2026-03-01T00:00:00Z")
    record(loaded.project, "intel-b-1", counted(), created_at="2026-02-01T00:00:00Z")
    assert found(loaded).info.machine_id == "intel-a-1"


def test_neither_this_machine_nor_another_suite_nor_a_baseline_without_counts_is_of_use(loaded):
    record(loaded.project, probe().machine_id, counted())
    record(loaded.project, "intel-x-1", counted(), suite="pr")
    record(loaded.project, "intel-y-1")
    record(loaded.project, "intel-z-1", counted(isa_class="avx2"))
    assert found(loaded) is None


def test_a_broken_baseline_of_another_machine_ends_no_gate(loaded):
    op_counts_file(record(loaded.project, "intel-x-1", counted())).write_text("{", encoding="utf-8")
    assert found(loaded) is None
    record(loaded.project, "intel-y-1", counted())
    assert found(loaded).info.machine_id == "intel-y-1"
