"""Examples 1 and 2 of the paper, sums in modes: fewer numbers than a vector of the map."""

from __future__ import annotations

import numpy as np

from benchmarks.common import Section
from benchmarks.networks import rows
from dokl import Exchange, Features, Gaussian, GraphRecipe, squares
from dokl.base.random_numbers import generator, spawn
from dokl.learning.metrics import decibels
from dokl.network.sums import shared
from dokl.simulation.streams import Example1, Example2
from dokl.simulation.theory import ModalFeatures, gaussian_inputs

# Example, D of its map, E|z|^2 left out by the modes, what the paper's scheme reaches, target.
CASES = (
    (Example1(n=300), 2500, 1e-4, -18.98, -19.85),
    (Example2(n=400), 300, 1e-6, -16.76, -25.0),
)
EVERY, RIDGE, POINTS = 10, 1e-4, 4000


def measure(quick: bool) -> Section:
    """Error without noise, plus the noise, in dB, mean over nodes and realizations."""
    section = Section(
        "Examples 1 and 2 in modes",
        f"20 nodes, an exchange of sums every {EVERY} rows; error against the target without "
        f"noise, plus the noise, after n rows per node. {4 if quick else 20} realizations.",
    )
    inputs = gaussian_inputs(np.zeros(5), 1.0)
    fresh = np.random.default_rng(0).standard_normal((POINTS, 5))
    for example, D, tail, paper, goal in CASES:
        recipe, errors = ModalFeatures(Features(Gaussian(5.0), 5, D), inputs, tail=tail), []
        for seed in spawn(1, 4 if quick else 20):
            feature_seed, graph_seed, data_seed = spawn(seed, 3)
            features, graph = recipe.draw(feature_seed), GraphRecipe("random", 20).draw(graph_seed)
            method, exchange = squares(RIDGE, share="sums"), Exchange(graph, every=EVERY)
            state = rows.learned(features, method, exchange, example.draw(data_seed).block())
            target = example.draw_target(generator(data_seed, ("target", 0)))(fresh[:, None])
            errors.append(rows.errors(state, features.transform(fresh), target).mean())
        found = float(decibels(np.mean(errors) + example.noise**2))
        section.add(
            f"{type(example).__name__}, {example.n} rows",
            f"{found:.2f} dB",
            None,
            f"{goal} dB",
            found <= goal,
            f"{features.D} modes, {shared.size(features.D, 1)} numbers a message; the paper's "
            f"scheme {paper} dB after thousands of vectors of {D}",
        )
    return section
