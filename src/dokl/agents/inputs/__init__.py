"""What arrives from outside, by the agreed preprocessing, into samples: see `arrivals`."""

from dokl.agents.inputs.arrivals import Arrival, Inputs

__all__ = ["Arrival", "Inputs"]
