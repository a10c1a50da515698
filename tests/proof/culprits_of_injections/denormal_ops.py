"""Which ops of the victim meet denormals, found by looking at every tensor: `python -m …denormal_ops` prints how many.

What is slow about denormals differs between CPUs (quotients alone on some of AMD's, nearly everything on others), so
what an answer may name is not written down but asked of the victim.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VICTIM = Path(__file__).with_name("victim")


def ops_with_more_denormals(before: Mapping[str, str], after: Mapping[str, str]) -> frozenset[str]:
    """Names such as `aten::div` of ops that meet more denormals in one step of the victim than in another.

    Args:
        before: Variables of the victim.
        after: Those of the other step.
    """
    baseline, candidate = _counted(before), _counted(after)
    return frozenset(name for name, count in candidate.items() if count > baseline.get(name, 0))


def _counted(variables: Mapping[str, str]) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.culprits_of_injections.denormal_ops"],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    """Run a step and print how many denormals each op read and wrote."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    found: Counter[str] = Counter()

    class Looking(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
            name = func.overloadpacket._qualified_op_name
            found[name] += sum(map(_denormals, tensors))
            return result

    def _denormals(tensor: torch.Tensor) -> int:
        if not tensor.is_floating_point():
            return 0
        sizes = tensor.detach().abs()
        return int(((sizes > 0) & (sizes < torch.finfo(tensor.dtype).tiny)).sum())

    sys.path.insert(0, str(VICTIM))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    from victim import training_step

    step = training_step()
    step()
    with Looking():
        step()
    print(json.dumps({name: count for name, count in sorted(found.items()) if count}))  # noqa: T201


if __name__ == "__main__":
    main()
