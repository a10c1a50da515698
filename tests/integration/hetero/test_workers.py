"""Workers of heterogeneous training: their updates are SGD, alone, beside each other, and through a copy."""

from __future__ import annotations

import copy
import functools
import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from perfguard.errors import StoreError, UsageError  # noqa: E402
from perfguard.hetero.child.checkpoints import read_checkpoint, write_checkpoint  # noqa: E402
from perfguard.hetero.child.data import Examples, open_examples, prepare  # noqa: E402
from perfguard.hetero.child.models import build_model, loss_sum, require_outputs  # noqa: E402
from perfguard.hetero.child.workers import Hogwild, LocalModel, Replica, Stream, pieces_of, serve  # noqa: E402
from perfguard.hetero.coordinator import Snapshot  # noqa: E402
from perfguard.hetero.messages import ExecuteWork, Range, Report, ScheduleWork, Stop, Task, WorkerLost  # noqa: E402
from perfguard.records.training import Counters, DataConfig, Merge, ModelConfig  # noqa: E402

CPU = torch.device("cpu")


def part(start=0, stop=48):
    return Range(ticket=1, task=Task.TRAIN, start=start, stop=stop)


@pytest.fixture(params=["covtype", "w8a", "delicious"])
def examples(request, tmp_path) -> Examples:
    return open_examples(prepare(DataConfig(source=request.param, examples=64), tmp_path))


@pytest.fixture
def model(examples):
    torch.manual_seed(1)
    return build_model(ModelConfig(layers=2, width=16), examples.shape)


def by_torch(model, examples, pieces, learning_rate):
    """The same updates by torch's own optimizer."""
    own = copy.deepcopy(model)
    optimizer, sums = torch.optim.SGD(own.parameters(), lr=learning_rate), loss_sum(examples.shape)
    for start, stop in pieces:
        inputs, targets = examples.batch(start, stop)
        optimizer.zero_grad()
        (sums(own(inputs), targets) / (stop - start)).backward()
        optimizer.step()
    return own


def require_same(model, other, **tolerance):
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, **tolerance)


def replica(model, examples, merge=Merge.DELTA, **more):
    shared = LocalModel(list(model.parameters()), merge, CPU)
    return Replica(shared, copy.deepcopy(model), examples, loss_sum(examples.shape), device=CPU, **more)


def test_a_hogwild_worker_alone_is_plain_sgd(model, examples):
    wanted = by_torch(model, examples, [(0, 12), (12, 24), (24, 36), (36, 48)], 0.1)
    done = Hogwild(model, examples, loss_sum(examples.shape)).train(part(), 4, 0.1)
    assert done.updates == 4
    require_same(model, wanted)


def test_a_stream_is_torchs_own_optimizer(model, examples):
    wanted = by_torch(model, examples, [(0, 12), (12, 24), (24, 36), (36, 48)], 0.1)
    assert Stream(model, examples, loss_sum(examples.shape)).train(part(), 4, 0.1).updates == 4
    require_same(model, wanted)


@pytest.mark.parametrize("merge", list(Merge))
def test_a_replica_alone_is_plain_sgd_whatever_its_merge(model, examples, merge):
    wanted = by_torch(model, examples, [(0, 24), (24, 48)], 0.1)
    done = replica(model, examples, merge=merge).train(part(), 2, 0.1)
    assert done.updates == 2
    require_same(model, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("merge", "is_kept"), [(Merge.DELTA, True), (Merge.OVERWRITE, False)])
def test_updates_made_meanwhile_stay_with_delta_and_are_lost_with_overwrite(model, examples, merge, is_kept):
    worker = replica(model, examples, merge=merge)
    wanted = by_torch(model, examples, [(0, 48)], 0.1)
    shared = next(iter(model.parameters())).data
    computed = worker._batch

    def beside(start, stop):
        shared.add_(1.0)  # another worker's update, after the copy was made
        return computed(start, stop)

    worker._batch = beside
    worker.train(part(), 1, 0.1)
    expected = next(iter(wanted.parameters())).data + (1.0 if is_kept else 0.0)
    torch.testing.assert_close(shared, expected, rtol=1e-5, atol=1e-5)


def test_an_emulated_device_looks_at_one_example_in_so_many(model, examples):
    own = copy.deepcopy(model)
    optimizer, sums = torch.optim.SGD(own.parameters(), lr=0.1), loss_sum(examples.shape)
    inputs, targets = examples.batch(0, 48, 4)
    (sums(own(inputs), targets) / 12).backward()
    optimizer.step()
    done = replica(model, examples, merge=Merge.DELTA, speed=4).train(part(), 1, 0.1)
    require_same(model, own, rtol=1e-5, atol=1e-6)
    assert done.loss == pytest.approx(sums(build(examples)(inputs), targets).item() * 4, rel=1e-4)


def build(examples):
    torch.manual_seed(1)
    return build_model(ModelConfig(layers=2, width=16), examples.shape)


def test_both_kinds_compute_the_same_loss(model, examples):
    sums, everything = loss_sum(examples.shape), Range(ticket=1, task=Task.LOSS, start=0, stop=64)
    inputs, targets = examples.batch(0, 64)
    wanted = sums(model(inputs), targets).item()
    for worker in (Hogwild(model, examples, sums), replica(model, examples, merge=Merge.DELTA)):
        done = worker.evaluate(everything)
        assert (done.loss, done.updates) == (pytest.approx(wanted, rel=1e-5), 0)


def test_an_update_of_sparse_rows_touches_only_their_features(tmp_path):
    examples = open_examples(prepare(DataConfig(source="real-sim", examples=64), tmp_path))
    model = build(examples)
    before = model[0].weight.detach().clone()
    Hogwild(model, examples, loss_sum(examples.shape)).train(part(0, 8), 2, 0.5)
    changed = (model[0].weight.detach() != before).any(dim=1).nonzero().flatten()
    assert set(changed.tolist()) <= set(examples.batch(0, 8)[0][0].tolist())
    assert len(changed) > 0


def test_pieces_are_equal_and_whole():
    assert list(pieces_of(part(3, 14), 3)) == [(3, 7), (7, 11), (11, 14)]
    assert list(pieces_of(part(0, 5), 1)) == [(0, 5)]


class Script:
    """A channel with orders of the test's own."""

    def __init__(self, *orders):
        self.orders, self.said = [*orders, Stop()], []

    def receive(self):
        return self.orders.pop(0)

    def send(self, message):
        self.said.append(message)


def order(**more):
    return ExecuteWork(range=part(), updates=4, learning_rate=0.1, **more)


def test_a_worker_says_that_it_is_ready_and_what_each_range_took(model, examples):
    script = Script(order())
    serve("w", Hogwild(model, examples, loss_sum(examples.shape)), script)
    ready, report = script.said
    assert ready == ScheduleWork(worker="w")
    assert (report.ticket, report.updates) == (1, 4)
    assert report.busy_s > 0
    assert report.waiting_s >= 0
    assert report.transfer_s == 0


@pytest.mark.parametrize("kind", ["hogwild", "replica"])
def test_frozen_and_unused_parameters_stay_as_they_are(model, examples, kind):
    model[2].requires_grad_(requires_grad=False)
    model.unused = nn.Parameter(torch.ones(3))
    model.forward = functools.partial(in_order, list(model[:5]))
    frozen, trained = model[2].weight.detach().clone(), model[4].weight.detach().clone()
    worker = replica(model, examples) if kind == "replica" else Hogwild(model, examples, loss_sum(examples.shape))
    assert worker.train(part(), 2, 0.1).updates == 2
    assert torch.equal(model[2].weight, frozen)
    assert not torch.equal(model[4].weight, trained)
    assert torch.equal(model.unused, torch.ones(3))


def in_order(layers, inputs):
    for layer in layers:
        inputs = layer(inputs)
    return inputs


def test_a_loss_that_is_not_finite_is_reported_as_nan(model, examples):
    with torch.no_grad():
        next(iter(model.parameters())).fill_(math.inf)
    script = Script(order())
    serve("w", Hogwild(model, examples, loss_sum(examples.shape)), script)
    assert isinstance(script.said[1], Report)
    assert math.isnan(script.said[1].loss)


def test_a_worker_that_fails_says_why_and_ends(model, examples):
    script = Script(order(), order())
    model[0].register_forward_pre_hook(lambda *_: 1 / 0)
    serve("w", Hogwild(model, examples, loss_sum(examples.shape)), script)
    assert script.said[1:] == [WorkerLost(worker="w", reason="ZeroDivisionError: division by zero")]


def test_a_worker_whose_device_has_no_memory_left_names_the_examples_and_the_settings(model, examples):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of …")

    script = Script(order())
    model[0].register_forward_pre_hook(full)
    serve("w", Hogwild(model, examples, loss_sum(examples.shape)), script)
    (lost,) = script.said[1:]
    assert lost.reason == "out of memory on its device, on 48 examples; lower its group's batch and maximum"


def test_a_module_of_the_users_is_built_by_its_factory(examples, tmp_path, monkeypatch):
    (tmp_path / "my_net.py").write_text(
        "from torch import nn\n"
        "def make(features, classes):\n    return nn.Linear(features, classes)\n"
        "def other(features, classes):\n    return features\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = build_model(ModelConfig(factory="my_net:make"), examples.shape)
    assert isinstance(made, nn.Linear)
    for factory, message in (
        ("my_net:other", "returned int, not a torch.nn.Module"),
        ("my_net:absent", "failed: AttributeError"),
        ("absent_net:make", "failed: ModuleNotFoundError"),
        ("my_net", "write module:function"),
    ):
        with pytest.raises(UsageError, match=message):
            build_model(ModelConfig(factory=factory), examples.shape)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(54, 9), r"for 2 examples its module gives \(2, 9\), not \(2, 7\)"),
        (nn.Linear(53, 7), r"fails on 2 examples: RuntimeError: .*; its input is float32 \[2, 54\]"),
        (nn.LSTM(54, 7), "gives tuple, not"),
    ],
)
def test_a_module_that_does_not_fit_the_data_is_refused_before_training(tmp_path, module, message):
    data = open_examples(prepare(DataConfig(source="covtype", examples=10), tmp_path))
    with pytest.raises(UsageError, match=message):
        require_outputs("my_net:make", module, data)
    fitting = nn.Sequential(nn.BatchNorm1d(54), nn.Linear(54, 7))
    require_outputs("my_net:make", fitting, data)
    assert fitting.training
    assert fitting[0].num_batches_tracked == 0


def test_a_checkpoint_keeps_model_and_counters(model, tmp_path):
    path = tmp_path / "kept" / "checkpoint.pt"
    path.parent.mkdir()
    snapshot = Snapshot(
        epoch=3, at_s=1.5, trained_s=1.0, updates={"cpu": 7}, batches={"cpu": 64},
        counters={"cpu-0": Counters(updates=7, trained=64, busy_s=0.5)},
    )  # fmt: skip
    write_checkpoint(path, snapshot, model.state_dict())
    found, state = read_checkpoint(path)
    assert found == snapshot
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert [each.name for each in path.parent.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04cut"])
def test_a_damaged_checkpoint_is_refused(tmp_path, content):
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(StoreError, match="is no checkpoint, or is damaged"):
        read_checkpoint(tmp_path / "checkpoint.pt")


def test_a_missing_checkpoint_is_said(tmp_path):
    with pytest.raises(StoreError, match="start it anew"):
        read_checkpoint(tmp_path / "checkpoint.pt")
