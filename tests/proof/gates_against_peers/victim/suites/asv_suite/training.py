"""The victim's cases for asv."""

import torch
import victim


class _Timed:
    factory = None

    def setup(self):
        torch.manual_seed(1)
        self.call = type(self).factory()
        self.call()


def _benchmark(factory):
    def time_case(self):
        self.call()

    name = factory.__name__
    return type(name, (_Timed,), {"factory": staticmethod(factory), "time_case": time_case, "__module__": __name__})


conv_step = _benchmark(victim.conv_step)
linear = _benchmark(victim.linear)
layer_norm = _benchmark(victim.layer_norm)
attention = _benchmark(victim.attention)
lstm = _benchmark(victim.lstm)
embedding_bag = _benchmark(victim.embedding_bag)
