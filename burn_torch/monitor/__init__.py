"""The parts of a view of a run: its events, their log, what they fold into, and commands back.  No torch."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.monitor.codec import DamagedLine as DamagedLine
from burn_torch.monitor.codec import decode as decode
from burn_torch.monitor.codec import encode as encode
from burn_torch.monitor.control import ControlClient as ControlClient
from burn_torch.monitor.control import ControlServer as ControlServer
from burn_torch.monitor.control import is_alive as is_alive
from burn_torch.monitor.event import *
from burn_torch.monitor.log import EVENTS as EVENTS
from burn_torch.monitor.log import EventFile as EventFile
from burn_torch.monitor.log import EventLog as EventLog
from burn_torch.monitor.log import Follower as Follower
from burn_torch.monitor.log import follow as follow
from burn_torch.monitor.log import read_events as read_events
from burn_torch.monitor.log import read_outline as read_outline
from burn_torch.monitor.series import Series as Series
from burn_torch.monitor.view import *

_list_exports(globals())
_check_exports(globals(), hot=("RunView.apply", "Series.add"))
