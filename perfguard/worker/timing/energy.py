"""Joules of the CPU packages, from the running average power limit counters (RAPL) in sysfs.

Source: Linux, Documentation/power/powercap/powercap.rst.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_POWERCAP = Path("sys/class/powercap")
_JOULES = 1e-6


@dataclass(frozen=True, slots=True)
class _Package:
    counter: Path
    range_uj: int
    """The counter starts again from 0 beyond this."""


class EnergyMeter:
    """The packages' energy counters; they count everything that runs there, so only one arm may run at a time."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._packages: tuple[_Package, ...] = ()
        self.problem: str | None = None
        """Why nothing can be read, one sentence; None where it can."""
        try:
            self._packages = _packages(root / _POWERCAP)
        except PermissionError as error:
            self.problem = (
                f"no RAPL counter can be read: {error.filename} is for root only (chmod a+r lets others read)"
            )
            return
        except (OSError, ValueError) as error:
            self.problem = f"no RAPL counter can be read: {error}"
            return
        if not self._packages:
            self.problem = f"no RAPL counter can be read: /{_POWERCAP} {_emptiness(root / _POWERCAP)}"

    def read(self) -> tuple[int, ...] | None:
        """Microjoules of each package; None where they cannot be read."""
        if not self._packages:
            return None
        try:
            return tuple(_number(package.counter) for package in self._packages)
        except (OSError, ValueError):
            return None

    def joules_between(self, before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> float | None:
        """Joules of all packages together between two readings; None where one of them failed."""
        if before is None or after is None:
            return None
        spent_uj = 0
        for package, first, last in zip(self._packages, before, after, strict=True):
            spent_uj += last - first if last >= first else last - first + package.range_uj
        return spent_uj * _JOULES


def _packages(place: Path) -> tuple[_Package, ...]:
    found = []
    # Parts of a package are intel-rapl:0:0 and so on; AMD's packages have the same names.
    for zone in sorted(place.glob("intel-rapl:*")):
        if zone.name.count(":") == 1 and (zone / "name").read_text(encoding="ascii").startswith("package"):
            _number(zone / "energy_uj")
            found.append(_Package(zone / "energy_uj", _number(zone / "max_energy_range_uj")))
    return tuple(found)


def _emptiness(place: Path) -> str:
    if not place.is_dir():
        return "does not exist"
    return "holds no CPU package" if any(place.iterdir()) else "is empty"


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))
