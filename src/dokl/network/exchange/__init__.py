"""How nodes share: who with whom, how often, what a node sends, and how its neighbours mix it.

rules       what is sent (all of it, rounded, few bits of what changed, a part in turn, nothing
            unless changed) and how what arrived is mixed (mean, clipped, without outliers); one
            implementation for simulations and live agents
conserving  the exchange of what must neither be lost nor counted twice, such as sums of rows
robust      mixing that a few faulty nodes cannot steer
coding      few bits a number, with error feedback
attacks     how nodes lie, for simulations
"""

from dokl.network.exchange import attacks
from dokl.network.exchange.attacks import Attack
from dokl.network.exchange.exchange import AVERAGES, ORDERS, Exchange
from dokl.network.exchange.rules import MIXINGS, Mixing, Sending

__all__ = [
    "AVERAGES",
    "Attack",
    "Exchange",
    "MIXINGS",
    "Mixing",
    "ORDERS",
    "Sending",
    "attacks",
]
