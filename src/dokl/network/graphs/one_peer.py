"""Graphs that take turns, so that a node sends one message at an exchange and all agree soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dokl.base.arrays import check_whole
from dokl.network.graphs.topologies import check_size

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def one_peer(K: int, every: int = 1) -> list[csr_array]:
    """One-peer exponential graphs: at exchange j node k receives from node k + 2^(j mod J) mod K
    alone, and takes half of it; J = ceil(log2 K) graphs, (K, K) each. (Ying, Yuan, Chen, Hu, Pan,
    Yin 2021.)

    Rows and columns sum to one. Where K is a power of two all nodes have the exact mean after J
    exchanges of one message each. every: that of the `Exchange`; graphs in a sequence go on step by
    step, so each is repeated until the next exchange.

    >>> x, graphs = np.arange(8.0), one_peer(8)
    >>> for A in graphs:
    ...     x = A @ x
    >>> len(graphs), x
    (3, array([3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5]))
    """
    from scipy.sparse import csr_array, eye_array

    check_size(K)
    check_whole("every", every, of="steps")
    if K == 1:
        return [csr_array(eye_array(1))]
    nodes, half = np.arange(K), np.full(2 * K, 0.5)
    graphs = []
    for j in range((K - 1).bit_length()):
        columns = np.concatenate([nodes, (nodes + 2**j) % K])
        graphs.append(csr_array((half, (np.tile(nodes, 2), columns)), shape=(K, K)))
    return [A for A in graphs for _ in range(every)]
