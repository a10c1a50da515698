"""Networks of the packaged tasks, in the shapes of MLPerf Mobile's published checkpoints.

Only `perfguard.tasks.child` makes them.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from perfguard.tasks.child.networks.deeplab import DeepLab
from perfguard.tasks.child.networks.digits import DigitsCnn, MnistCnn
from perfguard.tasks.child.networks.mobilebert import MobileBert
from perfguard.tasks.child.networks.mobiledet import SsdMobileDet
from perfguard.tasks.child.networks.mobilenet_edgetpu import MobileNetEdgeTpu
from perfguard.tasks.child.networks.recommender import Recommender

ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "deeplab_mobilenetv2": DeepLab,
    "digits_cnn": DigitsCnn,
    "mnist_cnn": MnistCnn,
    "mobilebert": MobileBert,
    "mobilenet_edgetpu": MobileNetEdgeTpu,
    "recommender": Recommender,
    "ssd_mobiledet": SsdMobileDet,
}
"""By the name that task files use."""
