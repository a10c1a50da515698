"""Quality of answers, by kept libraries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from perfguard.errors import ConfigError
from perfguard.records.tasks import Metric
from perfguard.tasks.child.models import Arrays


def quality_of(metric: Metric, answers: Arrays, truth: npt.NDArray[np.int64] | Arrays) -> float:
    """The metric of answers, `(examples, …)`, against labels or what another computation answers.

    Raises:
        ConfigError: The metric is not for such answers.
    """
    return _METRICS[metric](answers, truth)


def _top1(answers: Arrays, truth: npt.NDArray[np.int64] | Arrays) -> float:
    from sklearn.metrics import accuracy_score

    labels = truth[0].argmax(axis=1) if isinstance(truth, tuple) else truth
    return float(accuracy_score(labels, answers[0].argmax(axis=1)))


def _auc(answers: Arrays, truth: npt.NDArray[np.int64] | Arrays) -> float:
    from sklearn.metrics import roc_auc_score

    if isinstance(truth, tuple):
        raise ConfigError("quality: the metric auc needs labels")
    return float(roc_auc_score(truth, answers[0][:, 1] - answers[0][:, 0]))


_METRICS: dict[Metric, Callable[[Arrays, npt.NDArray[np.int64] | Arrays], float]] = {
    Metric.TOP1: _top1,
    Metric.AUC: _auc,
}
