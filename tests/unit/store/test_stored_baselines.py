from __future__ import annotations

import json

import pyperf
import pytest

from perfguard.errors import StoreError
from perfguard.host.probe import probe
from perfguard.records.record import BASELINE_SCHEMA, BaselineInfo, CaseNoise, StoredBaseline
from perfguard.records.run import Round
from perfguard.store.baselines import CONTROL_KEY, STARTED_KEY, BaselineStore, metadata_of
from tests.changed_values import replace

INFO = BaselineInfo(
    schema=BASELINE_SCHEMA,
    suite="pr",
    machine_id="intel-x-1",
    stack_id=None,
    created_at="2026-01-02T03:04:05Z",
    commit="c" * 40,
    source_id="t" * 40,
    perfguard="0.1.0",
    cpus=2,
    env_profile="stable",
    sample_s=0.05,
    samples=2,
    span_s=120.0,
    seed=7,
)
ROUNDS = {
    "kernel.x[m=1]": tuple(
        Round(values_s=(0.001 + n / 1e7, 0.0011 + n / 1e7), control_s=(0.002 + n / 1e6,), started_at=1000.0 + n)
        for n in range(4)
    ),
    "kernel.y": tuple(Round(values_s=(0.5,), control_s=(0.002,), started_at=1000.0 + n) for n in range(4)),
}
NOISE = CaseNoise(rounds=4, median_s=0.1 + 0.2, between_round_sd_ratio=0.01, within_round_sd_ratio=0.02, inner_loops=50)


def runs_of(rounds, **more):
    return {
        case_id: [
            pyperf.Run(
                list(entry.values_s),
                metadata={
                    "name": case_id,
                    "hostname": "build-host-7",
                    "load_avg_1min": 3.0,
                    CONTROL_KEY: entry.control_s[0],
                    STARTED_KEY: entry.started_at,
                    **more,
                },
                collect_metadata=False,
            )
            for entry in found
        ]
        for case_id, found in rounds.items()
    }


@pytest.fixture
def baseline():
    return StoredBaseline(info=INFO, fingerprint=probe(), noise=dict.fromkeys(ROUNDS, NOISE), rounds=ROUNDS)


@pytest.fixture
def store(tmp_path):
    return BaselineStore(tmp_path / "baselines")


@pytest.fixture
def place(store, baseline):
    return store.save(baseline, runs_of(ROUNDS))


def test_what_was_saved_is_loaded(store, place, baseline):
    assert store.load(place) == baseline
    assert place == store.place("intel-x-1", "pr")
    assert store.exists("intel-x-1", "pr")
    assert store.stored() == (place,)


def test_saving_twice_gives_the_same_bytes(store, place, baseline):
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    store.save(baseline, runs_of(ROUNDS))
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert before.keys() == {"info.json", "fingerprint.json", "noise.json", "timings.json"}


def test_a_new_baseline_replaces_the_old_one_whole(store, place, baseline):
    only = {"kernel.y": ROUNDS["kernel.y"]}
    newer = replace(baseline, rounds=only, noise={"kernel.y": NOISE})
    store.save(newer, runs_of(only))
    assert store.load(place) == newer


def test_the_timings_are_pyperfs_and_name_no_host(place):
    suite = pyperf.BenchmarkSuite.load(str(place / "timings.json"))
    assert suite.get_benchmark_names() == ["kernel.x[m=1]", "kernel.y"]
    assert "build-host-7" not in (place / "timings.json").read_text()
    assert "load_avg_1min" not in (place / "timings.json").read_text()


def test_each_value_has_a_line_of_its_own_so_that_a_change_can_be_reviewed(place):
    lines = (place / "noise.json").read_text().splitlines()
    assert sum('"median_s": 0.30000000000000004' in line for line in lines) == 2
    assert all(line.count(":") <= 2 for line in lines)


@pytest.mark.parametrize("name", ["info.json", "fingerprint.json", "noise.json", "timings.json"])
@pytest.mark.parametrize("text", ["", "{", "[1, 2", "null", "[]", "3", '{"version": "9"}'])
def test_a_corrupt_file_is_named_with_the_way_out(store, place, name, text):
    (place / name).write_text(text)
    with pytest.raises(StoreError) as refused:
        store.load(place)
    assert str(place / name) in str(refused.value)


def test_bytes_that_are_no_text_are_corrupt(store, place):
    (place / "info.json").write_bytes(b"\xff\xfe\0")
    with pytest.raises(StoreError, match=r"info\.json is corrupt"):
        store.load(place)


@pytest.mark.parametrize("name", ["info.json", "fingerprint.json", "noise.json", "timings.json"])
def test_a_missing_file_is_named(store, place, name):
    (place / name).unlink()
    with pytest.raises(StoreError, match=rf"{name} is missing; restore it from git"):
        store.load(place)


def test_a_folder_without_a_baseline_is_said_to_hold_none(store, tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreError, match=r"holds no baseline; `perfguard baseline show` lists"):
            store.load(place)


def test_another_schema_is_refused_before_anything_else_is_read(store, place):
    info = json.loads((place / "info.json").read_text())
    (place / "info.json").write_text(json.dumps({**info, "schema": 2}))
    (place / "timings.json").unlink()
    with pytest.raises(StoreError, match="has schema 2, this perfguard reads 1"):
        store.load(place)


def test_a_file_that_pyperf_wrote_by_itself_is_no_baseline(store, place):
    run = pyperf.Run([0.1], metadata={"name": "kernel.x"}, collect_metadata=False)
    (place / "timings.json").unlink()
    pyperf.BenchmarkSuite([pyperf.Benchmark([run])]).dump(str(place / "timings.json"))
    with pytest.raises(StoreError, match="a run without its control workload"):
        store.load(place)


def test_an_empty_store_holds_nothing(store):
    assert store.stored() == ()
    assert not store.exists("intel-x-1", "pr")


def test_a_place_that_cannot_be_written_is_an_error(tmp_path, baseline):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        BaselineStore(tmp_path / "file").save(baseline, runs_of(ROUNDS))


CHECKED = {
    case_id: tuple(
        replace(entry, data_seed=n + 2**31, checks={"loss": 0.1 + n / 3, "gradient_norm": 1e-9})
        for n, entry in enumerate(found)
    )
    for case_id, found in ROUNDS.items()
}


def test_what_the_rounds_computed_is_loaded_bit_for_bit(store, baseline):
    runs = {
        case_id: [
            pyperf.Run(list(e.values_s), metadata={"name": case_id, **metadata_of(e)}, collect_metadata=False)
            for e in found
        ]
        for case_id, found in CHECKED.items()
    }
    assert store.load(store.save(replace(baseline, rounds=CHECKED), runs)).rounds == CHECKED


def test_a_baseline_without_those_numbers_is_still_read(store, place):
    rounds = store.load(place).rounds["kernel.y"]
    assert [(entry.data_seed, entry.checks) for entry in rounds] == [(None, {})] * 4
