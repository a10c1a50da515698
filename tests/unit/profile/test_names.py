from __future__ import annotations

import pytest

from perfguard.profile.trace.names import EventRole, module_of, role_of, role_of_frame, source_of


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("perfguard::step", EventRole.STEP),
        ("ProfilerStep#12", EventRole.STEP),
        ("module:ResNet.layer1.0.conv1", EventRole.MODULE),
        ("module:CrossEntropyLoss", EventRole.LOSS_MODULE),
        ("module:Net.FocalLoss", EventRole.MODULE),
        ("autograd::engine::evaluate_function: AddmmBackward0", EventRole.GRADIENT),
        ("AddmmBackward0", EventRole.NONE),
        ("Optimizer.step#Adam.step", EventRole.UPDATE),
        ("Optimizer.zero_grad#SGD.zero_grad", EventRole.ZERO_GRAD),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", EventRole.LOADER),
        ("aten::cross_entropy_loss", EventRole.LOSS_OP),
        ("aten::nll_loss_forward", EventRole.LOSS_OP),
        ("aten::binary_cross_entropy", EventRole.LOSS_OP),
        ("aten::nll_loss_backward", EventRole.NONE),
        ("aten::conv2d", EventRole.NONE),
        ("my loss", EventRole.NONE),
        ("", EventRole.NONE),
    ],
)
def test_names_tell_what_begins(name, role):
    assert role_of(name) is role


def test_frames_of_modules_tell_their_class():
    assert role_of_frame("nn.Module: Conv2d_3") is EventRole.MODULE
    assert role_of_frame("nn.Module: BCEWithLogitsLoss_0") is EventRole.LOSS_MODULE
    assert role_of_frame("train.py(88): step") is EventRole.NONE


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("module:ResNet.layer1.0", "ResNet.layer1.0"),
        ("Optimizer.step#AdamW.step", "AdamW"),
        ("Optimizer.zero_grad#AdamW.zero_grad", "AdamW"),
        ("nn.Module: Conv2d_3", "Conv2d_3"),
        ("aten::conv2d", ""),
    ],
)
def test_names_tell_the_module(name, module):
    assert module_of(name) == module


@pytest.mark.parametrize(
    ("frame", "source"),
    [
        ("train.py(88): step", "train.py:88"),
        ("/home/user/model (copy)/net.py(7): forward", "/home/user/model (copy)/net.py:7"),
        ("<string>(1): <module>", ""),
        ("<frozen importlib._bootstrap>(1027): _find_and_load", ""),
        ("<built-in method conv2d of type object at 0x7f0000000000>", ""),
        ("torch/nn/modules/module.py(1775): _wrapped_call_impl", ""),
        ("/opt/env/lib/python3.11/site-packages/timm/layers.py(5): forward", ""),
        ("contextlib.py(78): inner", ""),
        ("importlib/__init__.py(108): import_module", ""),
        ("/tmp/bundle/perfguard/worker/serve.py(12): main", ""),
        ("perfguard/benchmarks/steps/resnet.py(30): step", "perfguard/benchmarks/steps/resnet.py:30"),
        ("/tmp/torchinductor_user/ab/cabc.py(60): call", ""),
        ("perfguard::line:train.py:88", "train.py:88"),
        ("perfguard::line:/home/user/a (copy)/net.py:7", "/home/user/a (copy)/net.py:7"),
        ("perfguard::line:", ""),
        ("nn.Module: Conv2d_3", ""),
        ("my_torch/layers.py(3): forward", "my_torch/layers.py:3"),
    ],
)
def test_a_source_is_a_line_outside_libraries(frame, source):
    assert source_of(frame) == source
