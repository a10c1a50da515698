from __future__ import annotations

import pytest

from perfguard.worker.timing.signals import EnergyMeter


def zone(root, name, label, energy_uj, range_uj=1_000_000):
    place = root / "sys/class/powercap" / name
    place.mkdir(parents=True)
    (place / "name").write_text(f"{label}\n")
    (place / "energy_uj").write_text(f"{energy_uj}\n")
    (place / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return place / "energy_uj"


def test_joules_are_summed_over_the_packages_and_over_nothing_else(tmp_path):
    first = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 0)
    zone(tmp_path, "intel-rapl:0:0", "core", 7)
    zone(tmp_path, "intel-rapl:2", "psys", 7)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 100)
    meter = EnergyMeter(tmp_path)
    assert meter.problem is None
    before = meter.read()
    first.write_text("500100\n")
    second.write_text("250000\n")
    assert meter.joules_between(before, meter.read()) == pytest.approx(0.75)


def test_a_counter_that_starts_again_from_zero_loses_nothing(tmp_path):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 990_000, range_uj=1_000_000)
    meter = EnergyMeter(tmp_path)
    before = meter.read()
    counter.write_text("40000\n")
    assert meter.joules_between(before, meter.read()) == pytest.approx(0.05)


def test_without_counters_the_reason_names_what_was_looked_at(tmp_path):
    assert EnergyMeter(tmp_path).problem == "no RAPL counter can be read: /sys/class/powercap does not exist"
    (tmp_path / "sys/class/powercap").mkdir(parents=True)
    assert EnergyMeter(tmp_path).problem == "no RAPL counter can be read: /sys/class/powercap is empty"
    zone(tmp_path, "intel-rapl:0", "psys", 7)
    meter = EnergyMeter(tmp_path)
    assert meter.problem == "no RAPL counter can be read: /sys/class/powercap holds no CPU package"
    assert meter.read() is None
    assert meter.joules_between(None, None) is None


def test_a_counter_that_holds_no_number_is_a_reason_and_no_crash(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", "rubbish")
    meter = EnergyMeter(tmp_path)
    assert "no RAPL counter can be read" in (meter.problem or "")
    assert meter.read() is None


def test_a_counter_for_root_only_says_what_to_do(tmp_path, monkeypatch):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    read = type(counter).read_text

    def refuse(path, *arguments, **options):
        if path == counter:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *arguments, **options)

    monkeypatch.setattr(type(counter), "read_text", refuse)
    problem = EnergyMeter(tmp_path).problem or ""
    assert str(counter) in problem
    assert "chmod a+r" in problem


def test_a_counter_that_vanishes_gives_no_value_for_that_sample(tmp_path):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    meter = EnergyMeter(tmp_path)
    before = meter.read()
    counter.unlink()
    assert meter.read() is None
    assert meter.joules_between(before, meter.read()) is None
