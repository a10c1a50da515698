from __future__ import annotations

import json

import pytest

from perfguard.codec import from_builtins
from perfguard.records.steps.program import ModuleFacts, ProgramFacts
from perfguard.worker.program import answer, facts_of

pytestmark = pytest.mark.torch


@pytest.fixture
def net(nn):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 4, 3)
            self.blocks = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU())
            self.head = nn.Linear(4, 2, bias=False)

    return Net()


def step_of(*held):
    def step():
        return held

    return step


def paths(facts):
    return [module.path for module in facts.modules]


def test_modules_with_tensors_of_their_own_are_told_in_order_by_their_paths(net):
    assert paths(facts_of([step_of(net)])) == ["Net.stem", "Net.blocks.0", "Net.head"]


def test_who_learns_is_told_for_each_module(torch, net):
    net.stem.requires_grad_(False)
    optimizer = torch.optim.SGD(net.blocks.parameters(), lr=0.1)
    facts = facts_of([step_of(net, optimizer)])
    assert facts.optimizers == ("SGD",)
    assert facts.modules == (
        ModuleFacts(path="Net.stem", kind="Conv2d", parameters=2, trainable=0, updated=0),
        ModuleFacts(path="Net.blocks.0", kind="BatchNorm2d", parameters=2, trainable=2, updated=2),
        ModuleFacts(path="Net.head", kind="Linear", parameters=1, trainable=1, updated=0),
    )


def test_a_frozen_parameter_that_an_optimizer_holds_is_not_updated(torch, net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.stem.requires_grad_(False)
    (stem, *_) = facts_of([step_of(net, optimizer)]).modules
    assert (stem.trainable, stem.updated) == (0, 0)


def test_buffers_alone_make_a_module_known(nn, torch):
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(3))

    (module,) = facts_of([step_of(nn.Sequential(Frozen()))]).modules
    assert (module.path, module.kind, module.parameters) == ("Sequential.0", "Frozen", 0)


def test_a_part_that_is_held_apart_goes_by_its_place_in_the_whole(net):
    assert paths(facts_of([step_of(net.head, net)])) == ["Net.stem", "Net.blocks.0", "Net.head"]


def test_a_shared_module_goes_by_its_first_place(nn):
    shared = nn.Linear(2, 2)
    assert paths(facts_of([step_of(nn.Sequential(shared, nn.ReLU(), shared))])) == ["Sequential.0"]


def test_compiling_changes_no_name(torch, net):
    compiled = torch.compile(net, backend="eager")
    assert paths(facts_of([step_of(compiled)])) == ["Net.stem", "Net.blocks.0", "Net.head"]


def test_two_models_are_both_told(nn, net):
    assert {"Linear", "Net.stem"} < set(paths(facts_of([step_of(nn.Linear(2, 2), net)])))


def test_loaders_tell_their_workers(torch):
    loader = torch.utils.data.DataLoader([1, 2], num_workers=1)
    assert facts_of([step_of(loader)]).loader_workers == (1,)


def test_denormals_are_told_for_what_stays_from_step_to_step(torch, net):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.0)
    with torch.no_grad():
        net.head.weight.fill_(1e-41)
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, 1e-20)  # its square is denormal
    optimizer.step()
    found = {count.group: count for count in facts_of([step_of(net, optimizer)]).denormals}
    assert list(found) == ["parameters", "gradients", "optimizer state"]
    assert (found["parameters"].denormals, found["parameters"].worst) == (8, "Net.head.weight")
    assert found["gradients"].denormals == 0
    assert found["optimizer state"].denormals == sum(parameter.numel() for parameter in net.parameters())
    assert found["optimizer state"].worst.startswith("exp_avg_sq of Net.")


def test_parameters_that_only_an_optimizer_holds_are_counted(torch):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.full((5,), 1e-41))], lr=0.1)
    (count,) = facts_of([step_of(optimizer)]).denormals
    assert (count.denormals, count.worst) == (5, "a parameter")


def test_nothing_is_told_of_a_program_without_models(torch):
    facts = facts_of([step_of(1)])
    assert (facts.modules, facts.optimizers, facts.loader_workers, facts.denormals) == ((), (), (), ())
    assert facts.flushes_denormals is False


def test_other_cases_of_the_process_are_not_told(nn, net):
    other = nn.Linear(9, 9)
    assert "Linear" not in paths(facts_of([step_of(net)]))
    assert other.weight.numel() == 81


def test_without_roots_everything_alive_is_told(net):
    assert {"Net.stem", "Net.head"} <= set(paths(facts_of(None)))


def test_the_answer_passes_through_the_pipe(torch, net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader([1])
    sent = json.loads(json.dumps(answer([step_of(net, optimizer, loader)])))
    assert from_builtins(sent, ProgramFacts, source="the child") == facts_of([step_of(net, optimizer, loader)])
