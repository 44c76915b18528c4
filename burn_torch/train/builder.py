"""LearnerBuilder: the training of the Burn book, a thin form of SupervisedTraining."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Self, TypeVar, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.tensor import Device
from burn_torch.train.interrupt import Interrupter
from burn_torch.train.learner import Learner
from burn_torch.train.metric.base import Metric
from burn_torch.train.renderer import MetricsRenderer
from burn_torch.train.strategies import MultiDevice, SingleDevice
from burn_torch.train.supervised import LearningResult, SupervisedTraining

__all__ = ["BookLearner", "LearnerBuilder"]

M = TypeVar("M")


@checked(error=ConfigError)
@final
class LearnerBuilder:
    """Builds a learner whose `fit` trains, as in the Burn book.

        model = (
            LearnerBuilder("artifacts/mnist")
            .metric_train_numeric(AccuracyMetric())
            .metric_valid_numeric(AccuracyMetric())
            .devices([device])
            .num_epochs(10)
            .summary()
            .build(model, AdamConfig().init(), 1e-3)
            .fit(train_loader, valid_loader)
        )

    Each step gives a new builder.
    """

    def __init__(self, artifact_dir: str | Path) -> None:
        self._training = SupervisedTraining(artifact_dir, None, None)

    def metric_train(self, metric: Metric) -> Self:
        """A metric of the training split."""
        return self._with(self._training.metric_train(metric))

    def metric_valid(self, metric: Metric) -> Self:
        """A metric of the validation split."""
        return self._with(self._training.metric_valid(metric))

    def metric_train_numeric(self, metric: Metric) -> Self:
        """A metric of the training split."""
        return self.metric_train(metric)

    def metric_valid_numeric(self, metric: Metric) -> Self:
        """A metric of the validation split."""
        return self.metric_valid(metric)

    def with_file_checkpointer(self, recorder: object = None) -> Self:
        """Accepted as the book writes it; checkpoints are written anyway, in their one format."""
        return self._with(self._training.with_default_checkpointers())

    def devices(self, devices: Sequence[Device]) -> Self:
        """The devices to train on; several train together, see `MultiDevice`.  Raises: ConfigError for none."""
        strategy = SingleDevice(devices[0]) if len(devices) == 1 else MultiDevice(devices)
        return self._with(self._training.with_training_strategy(strategy))

    def grads_accumulation(self, batches: int) -> Self:
        """One update for so many batches."""
        return self._with(self._training.grads_accumulation(batches))

    def num_epochs(self, num_epochs: int) -> Self:
        """How often the training data is gone through."""
        return self._with(self._training.num_epochs(num_epochs))

    def checkpoint(self, epoch: int) -> Self:
        """Goes on after this epoch of the run in the artifact directory."""
        return self._with(self._training.checkpoint(epoch))

    def renderer(self, renderer: MetricsRenderer) -> Self:
        """Returns what a person sees."""
        return self._with(self._training.renderer(renderer))

    def interrupter(self) -> Interrupter:
        """A handle to stop the run from outside."""
        return self._training.interrupter()

    def summary(self) -> Self:
        """Shows the summary table at the end."""
        return self._with(self._training.summary())

    def build(self, model: M, optim: object, lr: object) -> BookLearner[M]:
        """The learner; the learning rate is a number or a schedule."""
        return BookLearner(self._training, Learner(model, optim, lr))

    def _with(self, training: SupervisedTraining) -> Self:
        builder = copy.copy(self)
        builder._training = training
        return builder


@final
class BookLearner(Generic[M]):
    """A learner that knows how it will be trained."""

    def __init__(self, training: SupervisedTraining, learner: Learner[M]) -> None:
        self._training = training
        self._learner = learner

    def fit(self, train_loader: object, valid_loader: object) -> M:
        """Trains, and gives the trained model for inference."""
        return self.launch(train_loader, valid_loader).model

    def launch(self, train_loader: object, valid_loader: object) -> LearningResult[M]:
        """Trains, and gives all there is to know, such as whether it was stopped."""
        return self._training.with_loaders(train_loader, valid_loader).launch(self._learner)
