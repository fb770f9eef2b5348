"""What a configuration of `dokl run` can say: its sections, and a commented example."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dokl.network.exchange import Mixing, Sending

EXAMPLE = """\
# A simulated network. Run it with: dokl run my.toml
# Every key is optional; the values here are the paper's Example 2, made shorter.
# A key that begins a line with '# ' is shown with a value it could have.

[data]
example = "example2"     # example1 ... example4, or a file of your own:
# file = "readings.csv"  # beside this file; CSV, TSV, Parquet, LIBSVM, JSON lines, maybe .gz.
#                        # Read whole, numbers standardised. Without `node`, rows are dealt out
# target = "y"           # column to predict; two labels become -1 and 1 for hinge, logistic, ...
# node = "station"       # column that says which node a row belongs to
# drop = ["id"]          # columns not to use
# passes = 1             # how often the rows of a file are gone through
nodes = 20               # with `node` there are as many as it has names
steps = 3000             # per node; of a file, at most
missing = 0.0            # share of samples that never arrive
drift = "none"           # "abrupt" (new targets at drift_at) or "slow"; example1 and example2
drift_at = [0.5]         # steps, or fractions of all steps
# parameters = { noise = 0.1 }   # of the example

[features]
kernel = "gaussian"      # laplacian, matern, cauchy, rational_quadratic
sigma = 5.0              # the kernel's width; for a file, about sqrt(number of inputs / 2)
D = 300                  # numbers in a node's vector, and in a message
variant = "cos"          # the paper's; paired, orthogonal, sobol, structured
# parameters = { nu = 1.5 }      # of matern; alpha of rational_quadratic

[learn]
method = "gradient"      # the paper's; or "squares": least squares, without
#                        # loss, schedule and steps below
# ridge = 0.01           # of least squares: noise over what is to be learned
# memory = 1000.0        # squares: rows that are remembered; all otherwise
# bound = 6.0            # of least squares: standard deviations that a wild target counts for
# share = "sums"         # squares: what nodes send, "theta", "sums" or "origins"
# fewest = 1             # squares: own rows that a message of sums must add
# robust = false         # squares, origins: leave those out whose rows hurt
loss = "squared"         # hinge, squared_hinge, logistic, huber, absolute, quantile, ...
# loss_parameter = 1.0   # of huber, epsilon_insensitive, quantile
schedule = "constant"    # sqrt, inverse_power, normalised, pegasos
mu = 1.0                 # the step, or the first one; pegasos takes lam instead
lam = 0.0                # L2 regularization
# n0 = 1.0               # pegasos, inverse_power: steps that count as made already
# power = 0.5            # inverse_power: mu / (n + n0)^power
# eps = 1e-6             # normalised: mu / (|z|^2 + eps)

[network]
graph = "random"         # ring, grid, star, complete, small-world, geometric, exponential;
#                        # or a file of edges, two node names a line: "links.csv"
rule = "metropolis"      # laplacian, uniform
order = "cta"            # combine-then-adapt (the paper's) or "atc"
every = 1                # combine at every n-th step
average = "none"         # uniform, weighted
intercept = 0.0          # size of a private constant feature
alone = true             # also run the same nodes without any exchange
# parameters = { p = 0.2 }       # of random; k, p of small-world; radius of geometric

[sending]                # what goes out when it is time
# dtype = "float32"      # numbers are rounded to it; float64, float16
least = 0.0              # relative change below which nothing is sent
parts = 1                # a vector goes out in n parts, one in turn
bits = 0                 # 1 to 8 bits for the change of each number; 0: the numbers
refresh = 0              # with bits: whole numbers at every n-th message

[mixing]                 # what is done with what arrived
rule = "mean"            # "ios", "trimmed": without those who are far off
clip = 0.0               # longest difference to a neighbour that counts; 0: any
far = 1.75               # ios: times the usual distance from which one is far off
# faulty = 2             # how many are dropped; otherwise as many as are tolerated

[attacks]                # faulty nodes; results are then of the honest ones
# attack = "sign_flip"   # noise, isolation, little, inflated, stale, flipped_labels
# faulty = [3, 7]        # the numbers of the faulty nodes
# p = 1.0                # strength of the attack
# since = 0              # exchange with which it begins

[run]
engine = "auto"          # numba, reference, jax; mpi, under mpirun
runs = 10                # realizations; what is random is drawn again for each
seed = 1
# dtype = "float64"      # float32 otherwise, where the engine can
# ranks = 4              # engine mpi: how many there must be

[output]
record = ["mse"]         # mistakes, loss, node_mse, disagreement, bytes
# snapshot = 100         # every how many steps to take disagreement
plot = "curves.png"      # or .svg, .pdf
json = "curves.json"     # settings, summary and curves
"""


@dataclass(frozen=True)
class DataSection:
    """Where samples come from."""

    example: str | None = None
    file: str | None = None
    target: str | None = None
    node: str | None = None
    drop: tuple[str, ...] = ()
    passes: int = 1
    nodes: int | None = None
    steps: int | None = None
    missing: float = 0.0
    drift: str = "none"
    drift_at: tuple[float, ...] = (0.5,)
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FeatureSection:
    """The feature map."""

    kernel: str = "gaussian"
    sigma: float = 5.0
    D: int = 300
    variant: str = "cos"
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LearnSection:
    """Method; loss, schedule, regularization of gradients, numbers of least squares."""

    method: str = "gradient"
    ridge: float | None = None
    memory: float | None = None
    bound: float | None = None
    share: str | None = None
    fewest: int | None = None
    robust: bool | None = field(default=None, metadata={"earlier": "wary"})
    loss: str = "squared"
    loss_parameter: float | None = None
    schedule: str = "constant"
    mu: float | None = None
    lam: float = 0.0
    n0: float | None = None
    power: float | None = None
    eps: float | None = None


@dataclass(frozen=True)
class NetworkSection:
    """Who talks to whom, and how."""

    graph: str = "random"
    rule: str = "metropolis"
    order: str = "cta"
    every: int = 1
    average: str = "none"
    intercept: float = 0.0
    alone: bool = True
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AttacksSection:
    """The attack, and the nodes that run it."""

    attack: str | None = None
    faulty: tuple[int, ...] = field(default=(), metadata={"earlier": "liars"})
    p: float | None = None
    since: int | None = None


@dataclass(frozen=True)
class RunSection:
    """How it is computed."""

    engine: str = "auto"
    runs: int = 10
    seed: int = 1
    dtype: str | None = None
    ranks: int | None = None


@dataclass(frozen=True)
class OutputSection:
    """What is recorded and where it goes."""

    record: tuple[str, ...] = ("mse",)
    snapshot: int | None = None
    plot: str | None = None
    json: str | None = None


@dataclass(frozen=True)
class Simulation:
    """A whole configuration file."""

    data: DataSection
    features: FeatureSection
    learn: LearnSection
    network: NetworkSection
    sending: Sending
    mixing: Mixing
    attacks: AttacksSection = field(metadata={"earlier": "lies"})
    run: RunSection
    output: OutputSection
