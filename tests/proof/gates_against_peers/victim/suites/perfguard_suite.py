"""The victim's cases as perfguard's benchmarks."""

import victim

import perfguard


@perfguard.benchmark(phase="step", memory_format="channels_last")
def conv_step():
    return victim.conv_step()


@perfguard.benchmark(phase="forward+backward")
def linear():
    return victim.linear()


@perfguard.benchmark(phase="forward+backward")
def layer_norm():
    return victim.layer_norm()


@perfguard.benchmark(phase="forward+backward")
def attention():
    return victim.attention()


@perfguard.benchmark(phase="forward+backward")
def lstm():
    return victim.lstm()


@perfguard.benchmark(phase="forward+backward")
def embedding_bag():
    return victim.embedding_bag()


@perfguard.benchmark(phase="forward", tags=["fault"])
def matmul_bf16():
    return victim.matmul_bf16()


@perfguard.benchmark(phase="forward", tags=["fault"])
def conv_bf16():
    return victim.conv_bf16()


@perfguard.benchmark(phase="forward", tags=["fault"])
def bmm_bf16():
    return victim.bmm_bf16()


@perfguard.benchmark(phase="forward+backward", tags=["fault"])
def autocast_step():
    return victim.autocast_step()


@perfguard.benchmark(phase="forward", tags=["fault"])
def faded_conv():
    return victim.faded_conv()


@perfguard.benchmark(phase="forward", tags=["fault"])
def concatenate():
    return victim.concatenate()


@perfguard.benchmark(phase="forward", tags=["fault"])
def interpolate():
    return victim.interpolate()


@perfguard.benchmark(phase="optimizer", tags=["fault"])
def adam():
    return victim.adam()
