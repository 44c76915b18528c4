"""The first tensor that is not finite: watching for it, finding where it came from, replaying it from a file."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.train.anomaly.replay_file import Replay as Replay
from burn_torch.train.anomaly.replay_file import Replayed as Replayed
from burn_torch.train.anomaly.replay_file import replay as replay
from burn_torch.train.anomaly.search import Fault as Fault
from burn_torch.train.anomaly.search import Values as Values
from burn_torch.train.anomaly.watch import AnomalyWatch as AnomalyWatch

_list_exports(globals())
