"""Who talks to whom, and with which weights.

A graph is a `networkx.Graph` with nodes 0..K-1, undirected and without self loops. What the
algorithm needs of it is one sparse matrix A (K, K): node k combines its neighbours'
estimates as psi_k = sum_l a_kl theta_l. Here **N_k includes k itself** (|N_k| = degree + 1);
without that a 4-cycle gets eigenvalue -1 and never agrees.

>>> g = ring(4)
>>> metropolis(g).toarray().round(3)
array([[0.333, 0.333, 0.   , 0.333],
       [0.333, 0.333, 0.333, 0.   ],
       [0.   , 0.333, 0.333, 0.333],
       [0.333, 0.   , 0.333, 0.333]])
>>> round(describe(g).gap, 3)
0.667
"""

from dokl.network.graphs.facts import GraphFacts, describe
from dokl.network.graphs.one_peer import one_peer
from dokl.network.graphs.rules import (
    RULES,
    GraphRecipe,
    alone,
    check_weights,
    laplacian,
    metropolis,
    uniform,
    weights,
)
from dokl.network.graphs.tolerance import faulty_tolerated, most_faulty
from dokl.network.graphs.topologies import (
    BUILDERS,
    as_graph,
    build,
    complete,
    exponential,
    geometric,
    grid,
    random_connected,
    ring,
    small_world,
    star,
)

__all__ = [
    "BUILDERS",
    "RULES",
    "GraphFacts",
    "GraphRecipe",
    "alone",
    "as_graph",
    "build",
    "check_weights",
    "complete",
    "describe",
    "exponential",
    "geometric",
    "grid",
    "laplacian",
    "faulty_tolerated",
    "metropolis",
    "most_faulty",
    "one_peer",
    "random_connected",
    "ring",
    "small_world",
    "star",
    "uniform",
    "weights",
]
