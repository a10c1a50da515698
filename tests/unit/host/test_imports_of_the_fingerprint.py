from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ["archspec", "cpuinfo", "psutil", "torch", "numpy", "rich", "perfguard.worker"]


def test_importing_the_fingerprint_loads_nothing_heavy() -> None:
    code = (
        "import json, sys, perfguard.host.probe, perfguard.host.checks, "
        "perfguard.host.identity, perfguard.host.placement; "
        f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == []
