"""Sums of rows that travel between nodes.

shared    sums as one vector, and what a node with such a vector knows
sharing   what nodes keep, send and make of what they get
origins   sums per origin: an account that merges, exact whatever happens to messages
checks    what sums can be checked for, and origins whose rows hurt
accounts  the same as `origins` for all nodes of a simulation
"""
