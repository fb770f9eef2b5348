"""What the paper compares with, and what was published since: one method, one page.

Each method is a record of its parameters (the growing sums are compiled, those on random features
are matrix products in NumPy); `run` runs it over a stream, many times, on the same
data and networks as `dokl.run` with the same seed, and returns a Trace, so that its curves can be
drawn beside ours.

>>> from dokl.learning.kernels import Gaussian
>>> from dokl.simulation.streams import Example3
>>> result = run(KLMS(Gaussian(0.05), mu=1.0), Example3(K=1, n=200), runs=2, seed=1)
>>> result["size"][-1]  # a centre for every sample
np.float64(200.0)
"""

from dokl.paper.baselines.apsm import APSM
from dokl.paper.baselines.consensus_gp import ConsensusGP, EnsembleModel
from dokl.paper.baselines.diffusion_klms import DiffusionKLMS
from dokl.paper.baselines.diffusion_rls import DiffusionRLS
from dokl.paper.baselines.feature_admm import FeatureADMM
from dokl.paper.baselines.growing import KernelSum
from dokl.paper.baselines.klms import KLMS
from dokl.paper.baselines.linear_lms import LinearLMS, LinearModel
from dokl.paper.baselines.on_features import FeatureModel
from dokl.paper.baselines.pegasos import KernelPegasos
from dokl.paper.baselines.qklms import QKLMS
from dokl.paper.baselines.runs import RECORDABLE, Baseline, BaselineTrace, run

__all__ = [
    "APSM",
    "Baseline",
    "BaselineTrace",
    "ConsensusGP",
    "DiffusionKLMS",
    "DiffusionRLS",
    "EnsembleModel",
    "FeatureADMM",
    "FeatureModel",
    "KLMS",
    "KernelPegasos",
    "KernelSum",
    "LinearLMS",
    "LinearModel",
    "QKLMS",
    "RECORDABLE",
    "run",
]
