"""The description of a live network, one TOML file that every node reads: see `network`."""

from dokl.agents.description.agreed import AgreedInputs
from dokl.agents.description.checks import check_name, host_port, is_loopback
from dokl.agents.description.network import Network, parse, read
from dokl.agents.description.sections import (
    About,
    Durability,
    ExchangePolicy,
    Limits,
    Model,
    Node,
)
from dokl.agents.description.sources import SensorSource

__all__ = [
    "About",
    "AgreedInputs",
    "Durability",
    "ExchangePolicy",
    "Limits",
    "Model",
    "Network",
    "Node",
    "SensorSource",
    "check_name",
    "host_port",
    "is_loopback",
    "parse",
    "read",
]
