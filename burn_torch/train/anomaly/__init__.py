"""The first tensor that is not finite: watching for it, finding where it came from, replaying it from a file."""

from burn_torch.train.anomaly.replay_file import Replay, Replayed, replay
from burn_torch.train.anomaly.search import Fault, Values
from burn_torch.train.anomaly.watch import AnomalyWatch

__all__ = [
    "AnomalyWatch",
    "Fault",
    "Replay",
    "Replayed",
    "Values",
    "replay",
]
