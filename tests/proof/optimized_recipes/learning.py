"""Whether RetinaNet's optimized recipe still learns: its loss over 200 steps beside that of the reference.

Each step sees new images: noise with rectangles whose colour is their class, and their true boxes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import t as student

STEPS, WINDOW, SEEDS = 200, 20, 5
IMAGE_SIZE, BATCH, CLASSES, OBJECTS = 128, 2, 8, 3
LEARNING_RATE = 1e-4  # Of the reference recipe, after its warm-up
Curve = list[float]  # Mean loss of each window


def curve(seed: int, *, is_optimized: bool) -> Curve:
    """Train with one seed in this process; the same weights and images for both recipes."""
    import torch
    from torch import Tensor

    from perfguard.benchmarks.networks.retinanet import Target
    from perfguard.benchmarks.optimizers import optimizer_of
    from perfguard.benchmarks.steps import retinanet_of

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    memory_format = "channels_last" if is_optimized else "contiguous"
    options = {"norm": "folded", "focal": "fused", "heads": "packed"} if is_optimized else {}
    model = retinanet_of(classes=CLASSES, memory_format=memory_format, **options)
    colours = torch.rand(CLASSES, 3, 1, 1)
    updater = optimizer_of(
        "adam",
        [p for p in model.parameters() if p.requires_grad],
        implementation="fused" if is_optimized else "for-loop",
        lr=LEARNING_RATE,
    )
    draw = torch.Generator().manual_seed(seed)

    def image() -> tuple[Tensor, Target]:
        pixels = torch.rand(3, IMAGE_SIZE, IMAGE_SIZE, generator=draw) * 0.2
        sizes = torch.randint(IMAGE_SIZE // 5, IMAGE_SIZE // 2, (OBJECTS, 2), generator=draw)
        corners = (torch.rand(OBJECTS, 2, generator=draw) * (IMAGE_SIZE - sizes)).long()
        labels = torch.randint(1, CLASSES, (OBJECTS,), generator=draw)
        boxes = torch.cat([corners, corners + sizes], dim=1)
        for (left, top, right, bottom), label in zip(boxes.tolist(), labels.tolist(), strict=True):
            pixels[:, top:bottom, left:right] = colours[label]
        return pixels, Target(boxes=boxes.float(), labels=labels)

    losses = []
    model.train()
    for _ in range(STEPS):
        images, targets = zip(*(image() for _ in range(BATCH)), strict=True)
        pixels = torch.stack(images)
        if is_optimized:
            pixels = pixels.contiguous(memory_format=torch.channels_last)
        updater.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_optimized):
            loss = model(pixels, targets)
        loss.backward()
        updater.step()
        losses.append(float(loss.detach()))
    return [sum(losses[start : start + WINDOW]) / WINDOW for start in range(0, STEPS, WINDOW)]


def curves(journal: Path) -> tuple[list[Curve], list[Curve]]:
    """Of the reference and of the recipe, one a seed; those that the journal holds are not trained again."""
    known = json.loads(journal.read_text()) if journal.exists() else {}
    for seed in range(SEEDS):
        for name in ("reference", "optimized"):
            if f"{name} {seed}" not in known:
                command = [sys.executable, "-m", __spec__.name, name, str(seed)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                known[f"{name} {seed}"] = json.loads(done.stdout.splitlines()[-1])
                journal.parent.mkdir(parents=True, exist_ok=True)
                journal.write_text(json.dumps(known))
    reference, optimized = ([known[f"{name} {seed}"] for seed in range(SEEDS)] for name in ("reference", "optimized"))
    return reference, optimized


def spread(reference: Sequence[Curve], window: int) -> tuple[float, float]:
    """95 % prediction interval for one more seed of the reference, in one window."""
    values = [curve[window] for curve in reference]
    middle = sum(values) / len(values)
    sd = (sum((value - middle) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    half = student.ppf(0.975, len(values) - 1) * sd * (1 + 1 / len(values)) ** 0.5
    return middle - half, middle + half


def table(reference: Sequence[Curve], optimized: Sequence[Curve]) -> tuple[list[str], int, int]:
    """Markdown; how many windows of all curves of the recipe lie within the spread of the reference; of how many."""
    lines = [
        "| steps | reference, all seeds | spread of one more seed | recipe, all seeds | within |",
        "|---|--:|--:|--:|---|",
    ]
    inside = 0
    for window in range(STEPS // WINDOW):
        lower, upper = spread(reference, window)
        was, now = ([curve[window] for curve in curves] for curves in (reference, optimized))
        within = sum(lower <= value <= upper for value in now)
        inside += within
        lines.append(
            f"| {window * WINDOW + 1} to {(window + 1) * WINDOW} | {min(was):.3f} to {max(was):.3f} | "
            f"{lower:.3f} to {upper:.3f} | {min(now):.3f} to {max(now):.3f} | {within} of {len(now)} |"
        )
    return lines, inside, len(lines[2:]) * len(optimized)


if __name__ == "__main__":
    print(json.dumps(curve(int(sys.argv[2]), is_optimized=sys.argv[1] == "optimized")))  # noqa: T201
