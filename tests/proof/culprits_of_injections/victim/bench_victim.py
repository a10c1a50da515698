"""The victim as a benchmark."""

from victim import training_step

import perfguard


@perfguard.benchmark(name="victim", phase="step")
def victim():
    return training_step()
