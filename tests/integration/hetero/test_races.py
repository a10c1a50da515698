"""Workers that race on one model without locks: its loss converges all the same."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from perfguard.hetero.child.data import open_examples, prepare  # noqa: E402
from perfguard.hetero.child.models import build_model, loss_sum  # noqa: E402
from perfguard.hetero.child.workers import Hogwild, LocalModel, Replica  # noqa: E402
from perfguard.hetero.messages import Range, Task  # noqa: E402
from perfguard.records.training import DataConfig, Merge, ModelConfig  # noqa: E402

EXAMPLES, EPOCHS, UPDATES = 512, 8, 4
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    return open_examples(prepare(DataConfig(source="covtype", examples=EXAMPLES), tmp_path_factory.mktemp("data")))


def on_the_same_weights(model):
    """Another module with the parameters of this one, as each process has it."""
    other = copy.deepcopy(model)
    for own, shared in zip(other.parameters(), model.parameters(), strict=True):
        own.data = shared.data
    return other


def ranges(batch):
    """Every epoch's examples, cut into batches."""
    starts = [start for _ in range(EPOCHS) for start in range(0, EXAMPLES, batch)]
    return [Range(ticket=n, task=Task.TRAIN, start=at, stop=min(EXAMPLES, at + batch)) for n, at in enumerate(starts)]


def train(workers, batch, learning_rate):
    """All workers at once, each in a thread, on ranges of one list."""
    left, lock = iter(ranges(batch)), threading.Lock()

    def work(worker):
        while True:
            with lock:
                part = next(left, None)
            if part is None:
                return
            worker.train(part, UPDATES, learning_rate)

    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(work, workers))


def loss_of(model, examples):
    everything = Range(ticket=0, task=Task.LOSS, start=0, stop=EXAMPLES)
    return Hogwild(model, examples, loss_sum(examples.shape)).evaluate(everything).loss / EXAMPLES


@settings(max_examples=10)
@given(
    hogwilds=st.integers(1, 3),
    replicas=st.integers(0, 1),
    size=st.tuples(st.sampled_from((16, 32, 64)), st.sampled_from((0.02, 0.05, 0.1))),
    seed=st.integers(0, 1000),
)
def test_racing_workers_reach_most_of_what_one_alone_does(examples, hogwilds, replicas, size, seed):
    (batch, learning_rate), sums = size, loss_sum(examples.shape)
    torch.manual_seed(seed)
    first = build_model(ModelConfig(width=32), examples.shape)

    alone = copy.deepcopy(first)
    train([Hogwild(alone, examples, sums)], batch, learning_rate)

    shared = copy.deepcopy(first)
    merged = LocalModel(list(shared.parameters()), Merge.DELTA, CPU)
    racing = [Hogwild(on_the_same_weights(shared), examples, sums) for _ in range(hogwilds)]
    racing += [Replica(merged, copy.deepcopy(shared), examples, sums, device=CPU) for _ in range(replicas)]
    train(racing, batch, learning_rate)

    before, after = loss_of(first, examples), loss_of(shared, examples)
    assert before - after > 0.5 * (before - loss_of(alone, examples)) > 0
