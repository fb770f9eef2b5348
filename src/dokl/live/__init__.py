"""Live agents: nodes of a network as processes that learn together.

description   the file that all nodes share; certificates: who may join
sums          one node's learning where sums travel
protocol      what a node does, without sockets, clocks or threads: events in, effects out
inputs        rows from outside; sources: files, stdin, brokers
store         the journal; transports: how bytes travel; doors: connections from anyone
agent         the process: `runtime` ties all of this together
http          the HTTP interface: samples in, predictions and figures out
dashboard     reads agents, and decides nothing
jobs          what the commands do, as functions
"""
