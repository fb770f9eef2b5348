"""Live agents: nodes of a network as processes that learn together.

description    the file that all nodes share; certificates: who may join
protocol       what a node does, without sockets, clocks or threads: events in, effects out
learner        one node's learning; inputs: rows from outside; sources: files, stdin
store          the journal; transports: how bytes travel; runtime: ties all of this together
http           the HTTP face: samples in, predictions and figures out
"""
