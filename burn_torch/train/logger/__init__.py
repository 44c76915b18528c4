"""Loggers: metrics in files or memory, and the application log."""

from burn_torch.train.logger.application import ApplicationLogger, FileApplicationLogger
from burn_torch.train.logger.metric import FileMetricLogger, InMemoryMetricLogger, MetricLogger

__all__ = [
    "ApplicationLogger",
    "FileApplicationLogger",
    "FileMetricLogger",
    "InMemoryMetricLogger",
    "MetricLogger",
]
