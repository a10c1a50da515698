from __future__ import annotations

import gc
import threading
import weakref
from contextlib import suppress

import pytest

from perfguard.worker.profiling import modules
from perfguard.worker.profiling.modules import ModuleHooks

pytestmark = pytest.mark.torch


class Recorder:
    """Takes the place of torch's events: what was begun and ended, indented by what was open."""

    def __init__(self):
        self.lines, self.open = [], []

    def __call__(self, name):
        recorder = self

        class Event:
            def __enter__(self):
                recorder.lines.append("  " * len(recorder.open) + name)
                recorder.open.append(self)

            def __exit__(self, *error):
                assert recorder.open.pop() is self, "events must end in the opposite order"

        return Event()

    def take(self):
        taken, self.lines = self.lines, []
        assert self.open == []
        return taken


@pytest.fixture
def seen(torch, monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(modules, "annotation_type", lambda: recorder)
    return recorder


@pytest.fixture
def hooks(seen):
    made = ModuleHooks()
    made.install()
    yield made
    made.remove()


@pytest.fixture
def x(torch):
    return torch.ones(2, 3)


def test_modules_are_named_by_their_path_from_the_root(nn, hooks, seen, x):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

        def forward(self, value):
            return self.body(value)

    Net()(x)
    assert seen.take() == ["module:Net", "  module:Net.body", "    module:Net.body.0", "    module:Net.body.1"]


def test_results_are_those_without_hooks(torch, nn, hooks, x):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.LayerNorm(4))
    with_hooks = net(x)
    hooks.remove()
    assert torch.equal(net(x), with_hooks)


def test_removed_hooks_leave_modules_as_they_were(nn, hooks, seen, x):
    from torch.nn.modules import module

    hooks.remove()
    nn.Linear(3, 3)(x)
    assert seen.take() == []
    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks


def test_installing_twice_sees_each_call_once(nn, hooks, seen, x):
    hooks.install()
    nn.ReLU()(x)
    assert seen.take() == ["module:ReLU"]


def test_a_forward_that_raises_ends_its_event(nn, hooks, seen, x):
    net = nn.Sequential(nn.ReLU(), nn.Linear(7, 7))
    with pytest.raises(RuntimeError):
        net(x)
    assert seen.take() == ["module:Sequential", "  module:Sequential.0", "  module:Sequential.1"]


def test_a_model_that_catches_the_error_of_a_part_goes_on_at_the_right_place(nn, hooks, seen, x):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fails, self.works = nn.Linear(7, 7), nn.ReLU()

        def forward(self, value):
            try:
                return self.fails(value)
            except RuntimeError:
                return self.works(value)

    Net()(x)
    assert seen.take() == ["module:Net", "  module:Net.fails", "  module:Net.works"]


def test_calls_that_were_left_unseen_are_closed_by_the_next_end(nn, hooks, seen, x):
    class Leave(BaseException):
        pass

    class Leaving(nn.Module):
        def forward(self, value):
            raise Leave

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaving, self.after = Leaving(), nn.ReLU()

        def forward(self, value):
            with suppress(Leave):
                self.leaving(value)
            return value

    Net()(x)
    assert seen.take() == ["module:Net", "  module:Net.leaving"]


def test_closing_ends_what_was_left_open(nn, hooks, seen, x):
    class Leaving(nn.Module):
        def forward(self, value):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nn.Sequential(Leaving())(x)
    assert len(seen.open) == 2
    hooks.close()
    seen.take()


def test_a_shared_module_goes_by_its_first_place(nn, hooks, seen, x):
    shared = nn.ReLU()
    nn.Sequential(shared, shared)(x)
    assert seen.take() == ["module:Sequential", "  module:Sequential.0", "  module:Sequential.0"]


def test_a_module_of_two_models_goes_by_the_one_that_calls_it(nn, hooks, seen, x):
    class Generator(nn.Sequential):
        pass

    class Critic(nn.Sequential):
        pass

    shared = nn.ReLU()
    generator, critic = Generator(shared), Critic(nn.Identity(), shared)
    for model in (generator, critic, generator):
        model(x)
    assert [line for line in seen.take() if line.startswith(" ") and not line.endswith("Critic.0")] == [
        "  module:Generator.0",
        "  module:Critic.1",
        "  module:Generator.0",
    ]


def test_a_part_that_is_called_outside_its_parent_keeps_its_name_once_the_whole_is_known(nn, hooks, seen, x):
    net = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    net[0](x)
    assert seen.take() == ["module:Sequential", "  module:Sequential.0"]
    net(x)
    seen.take()
    net[0](x)
    assert seen.take() == ["module:Sequential.0", "  module:Sequential.0.0"]


def test_a_module_that_its_caller_does_not_hold_is_a_root_of_its_own(nn, hooks, seen, x):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = [nn.Sequential(nn.Linear(3, 3))]

        def forward(self, value):
            return self.hidden[0](value)

    Net()(x)
    assert seen.take() == ["module:Net", "  module:Sequential", "    module:Sequential.0"]


def test_a_loss_beside_the_model_is_a_root(torch, nn, hooks, seen, x):
    net, loss = nn.Linear(3, 3), nn.CrossEntropyLoss()
    loss(net(x), torch.tensor([0, 1])).backward()
    assert seen.take() == ["module:Linear", "module:CrossEntropyLoss"]


def test_a_part_that_is_added_later_gets_its_name(nn, hooks, seen, x):
    net = nn.Sequential(nn.ReLU())
    net(x)
    seen.take()
    net.append(nn.Sequential(nn.Tanh()))
    net(x)
    assert seen.take()[2:] == ["  module:Sequential.1", "    module:Sequential.1.0"]


def test_recomputed_calls_of_a_checkpoint_have_the_names_of_the_first(nn, hooks, seen, x):
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

        def forward(self, value):
            return checkpoint(self.block, value, use_reentrant=False)

    loss = Net()(x.requires_grad_()).sum()
    forward = seen.take()
    loss.backward()
    assert forward[1:] == ["  module:Net.block", "    module:Net.block.0", "    module:Net.block.1"]
    assert seen.take()[:2] == ["module:Net.block", "  module:Net.block.0"]


def test_the_wrapper_of_a_compiled_module_has_no_part_in_names(nn, hooks, seen, x):
    class OptimizedModule(nn.Module):
        def __init__(self, module):
            super().__init__()
            self._orig_mod = module

        def forward(self, value):
            return self._orig_mod(value)

    OptimizedModule(nn.Sequential(nn.ReLU()))(x)
    assert seen.take() == ["module:Sequential", "  module:Sequential.0"]
    nn.Sequential(OptimizedModule(nn.Sequential(nn.ReLU())))(x)
    assert seen.take() == ["module:Sequential", "  module:Sequential.0", "    module:Sequential.0.0"]


def test_nothing_happens_while_a_compiler_traces(torch, nn, seen, x, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    made = ModuleHooks()
    made.install()
    try:
        nn.ReLU()(x)
    finally:
        made.remove()
    assert seen.take() == []


def test_each_thread_has_its_own_stack(nn, hooks, seen, x):
    class Waiting(nn.Module):
        def forward(self, value):
            other = threading.Thread(target=nn.ReLU(), args=(value,))
            other.start()
            other.join()
            return value

    Waiting()(x)
    assert seen.take() == ["module:Waiting", "  module:ReLU"]


def test_modules_are_not_kept_alive(nn, hooks, seen, x):
    net = nn.Sequential(nn.ReLU())
    net(x)
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None


def test_a_new_module_at_the_place_of_a_gone_one_gets_its_own_name(nn, hooks, seen, x):
    for _ in range(50):
        nn.Sequential(nn.ReLU())(x)
        nn.Tanh()(x)
    assert set(seen.take()) == {"module:Sequential", "  module:Sequential.0", "module:Tanh"}


def test_torch_records_the_events(torch, nn, tmp_path, x):
    hooks = ModuleHooks()
    hooks.install()
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as running:
            net(x)
    finally:
        hooks.remove()
    names = [event.name for event in running.events() if event.name.startswith("module:")]
    assert sorted(names) == ["module:Sequential", "module:Sequential.0", "module:Sequential.1"]
