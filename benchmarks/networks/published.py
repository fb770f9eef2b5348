"""tom, energy and twitter with five agents, beside published figures of a decentralised GP.

Theirs (decentralised Gaussian process on random features, ICASSP 2025): 100 features for each of
three widths, ten rounds of consensus with every sample. Model frozen before the last 1000 rows.
"""

from __future__ import annotations

from benchmarks.common import Section
from benchmarks.networks import rows
from dokl import Exchange, Features, Gaussian, GraphRecipe, squares

# Published error, and a map of raw inputs: width and ridge.
STREAMS = {
    "tom": (5.43e-4, 1.0, 0.01),
    "energy": (3.054e-2, 1.0, 0.01),
    "twitter": (6.50e-4, 2.0, 0.1),
}
K, D, EVERY, LAST = 5, 100, 50, 1000


def measure(quick: bool) -> Section:
    """Mean square error on the last rows, mean over agents and of the worst."""
    section = Section(
        "Published streams, five agents",
        f"One exchange of sums every {EVERY} rows on a ring, D = {D}; mean square error on the "
        f"last {LAST} rows, mean over agents (ratio: to the published figure).",
    )
    for name, (published, width, ridge) in STREAMS.items():
        X, y = rows.load(name)
        features = Features(Gaussian(width), X.shape[1], D, "orthogonal").draw(1)
        Z = features.transform(X[-LAST:])
        exchange = Exchange(GraphRecipe("ring", K).draw(), every=EVERY)
        for how in rows.HOW:
            given = rows.block(X[:-LAST], y[:-LAST], K, how)
            state = rows.learned(features, squares(ridge, share="sums"), exchange, given)
            found = rows.errors(state, Z, y[-LAST:])
            section.add(
                f"{name}, {how} (width {width:g}, ridge {ridge:g})",
                f"{found.mean():.3e}",
                found.mean() / published,
                f"below {published:.3e}",
                found.mean() < published,
                f"worst agent {found.max():.3e}",
            )
    return section
