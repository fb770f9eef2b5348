"""The words around the numbers; every number here comes from the paper or from a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dokl.paper.reproduce.parts import PARTS
from dokl.paper.reproduce.results import PartResult, Row

TITLE = "The paper, reproduced"
INTRODUCTION = (
    "Every figure and table of Bouboulis, Chouvardas and Theodoridis, Online distributed learning "
    "over networks in RKH spaces using random Fourier features, run again. 'Prototype' are the "
    "figures of independent programs that settled what the paper leaves open; a row agrees when it "
    "lies within three combined standard errors of the prototype's, or within 0.3 dB. 'Δ/se' is "
    "our figure less theirs, in combined standard errors, beside the paper's in ours alone, since "
    "it printed none."
)
READINGS = (
    "Kernel exp(-|x - y|²/(2 sigma²)), frequencies from N(0, I/sigma²), squared loss with 1/2: "
    "without the half the step doubles and mu = 1 sits on the edge of stability.",
    "N_k includes k (Metropolis weights 1/max(|N_k|, |N_l|)): otherwise a 4-cycle has eigenvalue "
    "-1 and never agrees. Edges with probability 0.2, redrawn until connected: algebraic "
    "connectivity 0.69 and mean degree 3.90 for 20 nodes, as the paper reports.",
    "The q of QKLMS is the squared radius, and x is u alone in Examples 3 and 7 and (u, v) in "
    "Examples 4 and 8: the dictionary sizes (7, 32, 104) come out only so.",
    "Example 5 needs q = 1: the printed q = 5 gives about 87 centres where the paper has 1088.",
    "Example 1 does not give the number of centres: 50 with N(0, I) positions; 20 to 100 fit "
    "'steady at n = 3000'.",
    "Pegasos: n counted per node from 1, running on over passes; the same order in every pass; no "
    "projection; last iterate; errors averaged over nodes. Counting per node and no projection "
    "were settled by fits to the tables; other orders of the passes were not tried.",
    "Banana and Waveform: about 1300 training points instead of the printed 4000. It is an "
    "inference from the fit of all rows (for Banana 1300 is the printed test size); nothing else "
    "that was tried (sigma, lambda, D, scaling, projection, step counting) fits both sets. Both "
    "sizes are shown.",
)
SLIPS = (
    "Kernel: a missing minus in the exponent; p(omega): its exponent and dimension (D for d).",
    "R_zz: 1/2 where 1/D is meant. J_opt: E[eps] where E[eps z] is meant. theta_* is not theta_o.",
    "Algorithm 2: plus where minus is meant; the squared loss lacks its 1/2.",
    "Stability matrix (body and appendix): the right one is (I - mu (R⊠I + I⊠R)) (A⊠A); as "
    "printed its radius is above 1 for nearly every graph.",
    "|N_k| must include k. Consensus also needs a connected graph (A = I is doubly stochastic).",
    "Assumption 1 needs steps of the order of 1/sqrt(n), not merely below it; Pegasos' 1/(lambda "
    "n) is not covered. The base point of the subgradient inequality.",
    "Lemma 1 must also exclude omega_i = -omega_j with b_i + b_j = 0 mod pi.",
    "The steady state: the small-step theory predicts 1.5 s² at mu = 1, simulations give 2 s².",
    "Example 5's q; Example 6 'as in example 1' means example 2; Examples 2 and 4 cite the wrong "
    "figure; M = 100 and M = 104 for the same dictionary; M stands for nodes, centres and "
    "dictionary size; 'algebraic complexity' means connectivity.",
    "Adult has 32561 and 16281 rows, not 32562 and 16282. Training sizes of Banana and Waveform.",
)
POINTS = {"Readings and their evidence": READINGS, "Slips found in the paper": SLIPS}
REASONS = {
    "fig3b": "Example 6 is heavy-tailed in w and not at steady state, and KLMS costs the square of "
    "the number of samples, so that the prototype's mean was probably of few runs (their number "
    "was not kept). All methods here saw the same draws.",
    "fig1b": "Example 2 is heavy-tailed in w: means of different draws differ by more than their "
    "estimated standard errors say.",
    "table2-waveform": "the prototype's splits may differ in detail (which rows are drawn).",
    "table3-waveform": "the prototype's splits may differ in detail (which rows are drawn).",
}


def provenance(made: Mapping[str, Any]) -> str:
    """One line: version, seed, runs, engine, time, machine."""
    where = made["machine"]
    out = f"dokl {made['dokl']}, seed {made['seed']}, {made['runs']} runs, {made['engine']}, "
    out += f"{made['seconds']:,.0f} s of computing"
    if made.get("processor_seconds"):
        out += f" ({made['processor_seconds']:,.0f} s of processor time)"
    if made.get("theory_seconds"):
        out += f" and {made['theory_seconds']:,.0f} s for the theory"
    shared = " (shared)"
    if where.get("gpu"):
        out, shared = f"{out}; {where['gpu']}, JAX {where['jax']}", ""
    out += f"; {where['processor']}, {where['cores']} cores{shared}, Python {where['python']}, "
    out += f"NumPy {where['numpy']}, Numba {where['numba']}"
    return out + ("; --quick" if made.get("quick") else "")


def judged(results: Mapping[str, PartResult]) -> list[tuple[str, Row]]:
    """All rows that are held to a prototype's figure."""
    rows = [(name, row) for name, result in results.items() for row in result.rows]
    return [(name, row) for name, row in rows if row.agrees() is not None]


def exceptions(results: Mapping[str, PartResult]) -> list[tuple[str, Row]]:
    """Those that do not agree."""
    return [(name, row) for name, row in judged(results) if row.agrees() is False]


def counts(results: Mapping[str, PartResult]) -> str:
    """How many agree."""
    all_of_them, bad = len(judged(results)), len(exceptions(results))
    return f"{all_of_them - bad} of {all_of_them} figures agree with the prototypes'."


def missing(results: Mapping[str, PartResult]) -> str:
    """Parts that were not run, in one sentence; empty if there are none."""
    names = [name for name in PARTS if name not in results]
    if not names:
        return ""
    why = (
        " MNIST at D = 100,000 runs when asked for: `dokl reproduce table2 --only mnist`, ten runs "
        "in a minute or two on a GPU (`--engine jax`), or one in twenty minutes on two cores."
    )
    return f"Not run: {', '.join(names)}." + (why if "table2-mnist" in names else "")
