"""How nodes share: who with whom, how often, what a node sends, and how its neighbours mix it.

rules       what is sent (all of it, rounded, a part in turn, nothing unless changed) and how what
            arrived is mixed (mean, clipped); one implementation for simulations and live agents
conserving  the exchange of what must neither be lost nor counted twice, such as sums of rows
"""

from dokl.exchange.exchange import AVERAGES, ORDERS, Exchange
from dokl.exchange.rules import Mixing, Sending

__all__ = ["AVERAGES", "Exchange", "Mixing", "ORDERS", "Sending"]
