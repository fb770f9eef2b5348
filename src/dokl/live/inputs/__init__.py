"""What arrives from outside, by the agreed preprocessing, into samples: see `arrivals`."""

from dokl.live.inputs.arrivals import Arrival, Inputs

__all__ = ["Arrival", "Inputs"]
