"""The one intermediate representation, what writes it, what transforms it and what runs it anywhere."""

from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph, Literal, Node
from burn_torch.graph.origin import Origin, Origins
from burn_torch.graph.passes import dead_code
from burn_torch.graph.source import straight_line
from burn_torch.graph.trace import Slot, Trace
from burn_torch.graph.verifier import verify

__all__ = [
    "Graph",
    "Literal",
    "Node",
    "Origin",
    "Origins",
    "Slot",
    "Trace",
    "dead_code",
    "interpret",
    "straight_line",
    "verify",
]
