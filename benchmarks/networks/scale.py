"""One exchange of sums in a large network: time, memory, and what links cost."""

from __future__ import annotations

import resource
import time

import networkx as nx
import numpy as np

from benchmarks.common import Section
from dokl import Exchange, Features, Gaussian, Problem, squares
from dokl.network.graphs import metropolis
from dokl.network.sums import shared
from dokl.simulation.diffusion import exchange_vectors, init

D = 50


def measure(quick: bool) -> Section:
    """K nodes with four neighbours, then more neighbours."""
    K = 10_000 if quick else 100_000
    section = Section(
        f"{K:,} nodes",
        f"D = {D}, {shared.size(D, 1)} numbers a message; one exchange of all nodes in one process "
        "(mixing over links), and every node's solving.",
    )
    features = Features(Gaussian(2.0), 5, D, "paired").draw(0)
    problem, mixing = Problem(features, squares(0.1, share="sums")), {}
    for degree, size in ((4, K // 4), (4, K // 2), (8, K // 4), (16, K // 4), (4, K)):
        exchange = Exchange(metropolis(nx.circulant_graph(size, range(1, degree // 2 + 1))))
        state = init(problem, exchange, size)
        rng, Z = np.random.default_rng(0), features.transform(np.zeros((3, 5)))
        state.nodes["sums"] += shared.of_rows(Z, np.ones((3, 1)), None)
        state.nodes["sums"] *= rng.uniform(1.0, 2.0, (size, 1))
        before, links = float(state.sums[:, 0].sum()), exchange.flows[0].nnz - size
        took = np.inf
        for _ in range(3):  # the first one also pays for fresh memory
            began = time.process_time()
            _, mixed = exchange_vectors(problem, exchange, exchange.graphs, state)
            took = min(took, time.process_time() - began)
        mixing[degree, size] = took
        off = abs(float(mixed[:, 0].sum()) / before - 1.0)
        section.add(
            f"{size:,} nodes, {links:,} links: mixing",
            f"{took:.2f} s",
            accuracy=f"{1e9 * took / (links * mixed.shape[1]):.2f} ns per link and number; "
            f"total conserved to {off:.0e}",
        )
    began = time.process_time()
    problem.method.incoming(state, mixed)
    took = time.process_time() - began
    section.add(
        f"{K:,} nodes: solving", f"{took:.2f} s", accuracy=f"{1e6 * took / K:.0f} us a node"
    )
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    section.add("memory at most", f"{most:.1f} GiB", accuracy=f"{most * 1024**2 / K:.0f} kB a node")
    nodes, links = mixing[4, K] / mixing[4, K // 4], mixing[16, K // 4] / mixing[4, K // 4]
    section.add("four times the nodes", "mixing", nodes, "linear: 4x", nodes <= 6.0)
    section.add("four times the links", "mixing", links, "linear: 4x", links <= 6.0)
    return section
