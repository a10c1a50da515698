"""Settings of a user's script: what they change in it, and what they leave alone."""

from __future__ import annotations

import json
import textwrap

import pytest

from perfguard.records.script_settings import CHECKED_STEPS
from perfguard.worker.profiling.script_checks import FirstSteps
from perfguard.worker.profiling.script_settings import ScriptSettings
from perfguard.worker.profiling.scripts import run_script

torch = pytest.importorskip("torch")

CONVOLUTIONAL = """
    import contextlib, json, sys
    import torch
    from torch import nn

    torch.manual_seed(3)
    images = torch.rand(4, 3, 8, 8)
    labels = torch.tensor([0, 1, 2, 3])
    convolution = nn.Conv2d(3, 8, 3, padding=1)
    model = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4))
    seen = []

    @convolution.register_forward_hook
    def look(module, arguments, output):
        is_last = [each.is_contiguous(memory_format=torch.channels_last) for each in (arguments[0], module.weight)]
        seen.append({"dtype": str(output.dtype), "is_last": is_last})
"""
TRAINING = (
    CONVOLUTIONAL
    + """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    moment = optimizer.state[convolution.weight]["exp_avg"]
    print(json.dumps({
        "losses": losses,
        "loss_dtype": str(loss.dtype),
        "choice": [optimizer.param_groups[0][name] for name in ("foreach", "fused")],
        "moment_is_last": moment.is_contiguous(memory_format=torch.channels_last),
        "autocast": torch.is_autocast_enabled("cpu"),
        "weight_dtype": str(convolution.weight.dtype),
        "seen": seen[-1],
    }))
"""
)


@pytest.fixture
def run(tmp_path, capfd):
    """Runs a script with settings; gives what it printed as JSON, and what became of the settings."""

    def run_with(source, **chosen):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(source))
        settings = ScriptSettings(chosen)
        with FirstSteps().recorded(), settings.applied():
            end = run_script(str(path), [])
        assert end.problem is None, end.detail
        uses = {use.name: use for use in settings.uses()}
        return json.loads(capfd.readouterr().out or "null"), uses

    return run_with


def counts(use):
    return use.changed, use.kept, use.unable


def test_bf16_covers_forward_and_loss_and_leaves_weights_and_backward(run):
    found, uses = run(TRAINING, dtype="bf16")
    assert found["seen"]["dtype"] == "torch.bfloat16"
    assert found["loss_dtype"] == "torch.float32"  # as cross entropy is under autocast, not bf16
    assert found["weight_dtype"] == "torch.float32"
    assert found["autocast"] is False
    assert counts(uses["dtype"]) == (4, 0, 0)


def test_channels_last_reaches_images_weights_and_moments(run):
    plain, _ = run(TRAINING)
    found, uses = run(TRAINING, memory_format="channels_last")
    assert plain["seen"]["is_last"] == [False, False]
    assert found["seen"]["is_last"] == [True, True]
    assert found["moment_is_last"]
    assert counts(uses["memory_format"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("value", "choice"), [("for-loop", [False, False]), ("foreach", [True, False]), ("fused", [False, True])]
)
def test_optimizers_get_the_implementation(run, value, choice):
    found, uses = run(TRAINING, optimizer=value)
    assert found["choice"] == choice
    assert counts(uses["optimizer"]) == (1, 0, 0)


@pytest.mark.parametrize(
    "chosen", [{"memory_format": "channels_last"}, {"optimizer": "fused"}, {"optimizer": "foreach"}]
)
def test_settings_in_fp32_train_as_the_reference_does(run, chosen):
    reference, _ = run(TRAINING)
    found, _ = run(TRAINING, **chosen)
    assert found["losses"] == pytest.approx(reference["losses"], rel=1e-4)


def test_nothing_stays_wrapped(run):
    before = (torch.nn.Module.__call__, torch.optim.AdamW.__init__, torch.autograd.backward, torch.autograd.grad)
    run(TRAINING, dtype="bf16", memory_format="channels_last", optimizer="fused")
    after = (torch.nn.Module.__call__, torch.optim.AdamW.__init__, torch.autograd.backward, torch.autograd.grad)
    assert after == before


def test_reference_values_leave_a_script_as_it_is_written(run):
    found, uses = run(TRAINING, dtype="fp32", memory_format="contiguous")
    assert found["seen"] == {"dtype": "torch.float32", "is_last": [False, False]}
    assert not any(use.is_ignored for use in uses.values())


def test_an_autocast_region_of_the_script_is_left_alone(run):
    source = TRAINING.replace(
        "loss = nn.functional.cross_entropy(model(images), labels)",
        "with torch.autocast('cpu', torch.float16):\n            out = model(images)\n"
        "        loss = nn.functional.cross_entropy(out.float(), labels)",
    )
    found, uses = run(source, dtype="bf16")
    assert found["seen"]["dtype"] == "torch.float16"
    assert counts(uses["dtype"]) == (0, 4, 0)
    assert uses["dtype"].is_ignored


def test_an_autocast_region_that_the_script_has_switched_off_is_used(run):
    source = TRAINING.replace(
        "loss = nn.functional.cross_entropy(model(images), labels)",
        "with torch.autocast('cpu', enabled=False):\n            out = model(images)\n"
        "        loss = nn.functional.cross_entropy(out.float(), labels)",
    )
    found, _ = run(source, dtype="bf16")
    assert found["seen"]["dtype"] == "torch.bfloat16"
    assert found["autocast"] is False


@pytest.mark.parametrize("own", ["fused=True", "fused=False", "foreach=True"])
def test_an_implementation_that_the_script_chooses_is_kept(run, own):
    source = TRAINING.replace("lr=1e-3", f"lr=1e-3, {own}")
    plain, _ = run(source)
    found, uses = run(source, optimizer="for-loop")
    assert found["choice"] == plain["choice"]
    assert counts(uses["optimizer"]) == (0, 1, 0)


def test_an_optimizer_without_the_implementation_is_left_alone(run):
    source = (
        TRAINING.replace("AdamW", "RMSprop").replace('["exp_avg"]', '["square_avg"]').replace('"fused"', '"foreach"')
    )
    _, uses = run(source, optimizer="fused")
    assert counts(uses["optimizer"]) == (0, 0, 1)
    assert uses["optimizer"].is_ignored


def test_an_optimizer_that_refuses_the_implementation_is_made_as_it_was_written(run):
    found, uses = run(TRAINING.replace("lr=1e-3", "lr=torch.tensor(1e-3)"), optimizer="foreach")
    assert found["choice"] == [None, None]
    assert counts(uses["optimizer"]) == (0, 0, 1)


def test_a_class_of_the_scripts_own_inherits_the_implementation(run):
    source = TRAINING.replace(
        "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
        "class Own(torch.optim.AdamW):\n        def __init__(self, params):\n            super().__init__(params)\n"
        "    optimizer = Own(model.parameters())",
    )
    found, uses = run(source, optimizer="fused")
    assert found["choice"] == [False, True]
    assert counts(uses["optimizer"]) == (1, 0, 0)


def test_a_checkpoint_of_another_run_changes_neither_implementation_nor_layout(run):
    source = TRAINING.replace(
        "    losses = []\n",
        "    model(images).sum().backward(); optimizer.step()\n"
        "    written = optimizer.state_dict()\n"
        "    for group in written['param_groups']: group.update(foreach=None, fused=None)\n"
        "    for state in written['state'].values():\n"
        "        state.update({name: value.contiguous() for name, value in state.items()})\n"
        "    optimizer.load_state_dict(written)\n    losses = []\n",
    )
    plain, _ = run(source)
    found, _ = run(source, optimizer="fused", memory_format="channels_last")
    assert found["choice"] == [False, True]
    assert found["moment_is_last"]
    assert found["losses"] == pytest.approx(plain["losses"], rel=1e-4)


def test_validation_runs_under_autocast_that_ends_with_each_pass(run):
    source = (
        CONVOLUTIONAL
        + """
    with torch.no_grad():
        model(images)
        print(json.dumps([seen[-1]["dtype"], torch.is_autocast_enabled("cpu")]))
    """
    )
    found, uses = run(source, dtype="bf16")
    assert found == ["torch.bfloat16", False]
    assert counts(uses["dtype"]) == (1, 0, 0)


def test_gradients_of_gradients_leave_autocast_too(run):
    source = (
        CONVOLUTIONAL
        + """
    images.requires_grad_()
    gradient, = torch.autograd.grad(model(images).sum(), images, create_graph=True)
    print(json.dumps([str(gradient.dtype), torch.is_autocast_enabled("cpu")]))
    """
    )
    found, _ = run(source, dtype="bf16")
    assert found == ["torch.float32", False]


def test_checkpointed_parts_are_computed_again_as_they_were(run):
    source = TRAINING.replace(
        "model(images)", "torch.utils.checkpoint.checkpoint(model, images, use_reentrant=False)"
    ).replace("import torch\n", "import torch, torch.utils.checkpoint\n", 1)
    found, uses = run(source, dtype="bf16")
    assert found["seen"]["dtype"] == "torch.bfloat16"
    assert found["autocast"] is False
    assert counts(uses["dtype"]) == (4, 0, 0)


def test_images_in_containers_and_names_are_converted(run):
    source = (
        CONVOLUTIONAL
        + """
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model
        def forward(self, batch, more):
            last = [each.is_contiguous(memory_format=torch.channels_last) for each in (batch["x"][0], more)]
            return last, self.inner(batch["x"][0])
    last, _ = Wrapped()({"x": [images]}, more=images)
    print(json.dumps(last))
    """
    )
    found, _ = run(source, memory_format="channels_last")
    assert found == [True, True]


@pytest.mark.parametrize(
    ("name", "value"), [("dtype", "bf16"), ("memory_format", "channels_last"), ("optimizer", "fused")]
)
def test_a_script_without_a_network_ignores_every_setting(run, name, value):
    source = "import torch\nweight = torch.ones(3, requires_grad=True)\n(weight * 2).sum().backward()\n"
    _, uses = run(source, **{name: value})
    assert uses[name].is_ignored


def test_channels_last_is_ignored_by_networks_without_images(run):
    source = "import torch\ntorch.nn.Linear(3, 3)(torch.ones(1, 2, 3, 3))\n"
    _, uses = run(source, memory_format="channels_last")
    assert uses["memory_format"].is_ignored


@pytest.mark.parametrize(
    ("around", "chosen", "dtypes"),
    [
        ("if True:", {}, set()),
        ("if True:", {"dtype": "bf16"}, {"bf16"}),
        ("with torch.autocast('cpu', torch.bfloat16):", {}, {"bf16"}),
        ("with torch.autocast('cpu', torch.float16):", {"dtype": "bf16"}, {"fp16"}),
        ("with torch.autocast('cpu', torch.bfloat16, enabled=False):", {}, set()),
    ],
)
def test_the_dtype_of_autocast_is_recorded_whoever_chose_it(tmp_path, around, chosen, dtypes):
    path, recorded, settings = tmp_path / "train.py", FirstSteps(), ScriptSettings(chosen)
    path.write_text(textwrap.dedent(CONVOLUTIONAL) + f"\n{around}\n    model(images).sum().backward()\n")
    with recorded.recorded(), settings.applied():
        end = run_script(str(path), [])
    assert end.problem is None, end.detail
    assert recorded.dtypes == dtypes


def test_weights_in_a_narrow_dtype_are_recorded():
    recorded, weight = FirstSteps(), torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    recorded.step_ended(torch.optim.SGD([weight], lr=1.0))
    assert recorded.dtypes == {"bf16"}


def test_first_steps_are_recognised_by_losses_and_gradient_norms():
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    recorded = FirstSteps()
    with recorded.recorded():
        for _ in range(CHECKED_STEPS + 1):
            optimizer.zero_grad()
            (weight**2).sum().backward()
            (weight * 0).sum().backward()
            recorded.step_ended(optimizer)
            optimizer.step()
    assert sorted(recorded.numbers) == [
        *(f"gradient_norm_{step}" for step in (1, 2, 3)),
        *(f"loss_{step}" for step in (1, 2, 3)),
    ]
    assert recorded.numbers["loss_1"] == 25.0
    assert recorded.numbers["gradient_norm_1"] == 10.0
