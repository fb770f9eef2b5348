"""The description of a live network, one TOML file that every node reads: see `network`."""

from dokl.live.description.agreed import AgreedInputs
from dokl.live.description.checks import check_name, host_port, is_loopback
from dokl.live.description.network import Network, parse, read
from dokl.live.description.sections import (
    About,
    Durability,
    ExchangePolicy,
    Limits,
    Model,
    Node,
)
from dokl.live.description.service import Access, RowEncoder, ServiceDescription
from dokl.live.description.sources import SensorSource

__all__ = [
    "About",
    "AgreedInputs",
    "Access",
    "Durability",
    "ExchangePolicy",
    "Limits",
    "Model",
    "Network",
    "Node",
    "RowEncoder",
    "SensorSource",
    "ServiceDescription",
    "check_name",
    "host_port",
    "is_loopback",
    "parse",
    "read",
]
