"""What the paper compares with, and what was published since: one method, one page.

Each method is a record of its parameters (the growing sums are compiled, those on random features
are matrix products in NumPy); `run` runs it over a stream, many times, on the same
data and networks as `dokl.run` with the same seed, and returns a Trace, so that its curves can be
drawn beside ours.

>>> from dokl.kernels import Gaussian
>>> from dokl.streams import Example3
>>> result = run(KLMS(Gaussian(0.05), mu=1.0), Example3(K=1, n=200), runs=2, seed=1)
>>> result["size"][-1]  # a centre for every sample
np.float64(200.0)
"""

from dokl.baselines.apsm import APSM
from dokl.baselines.consensus_gp import ConsensusGP, EnsembleModel
from dokl.baselines.diffusion_klms import DiffusionKLMS
from dokl.baselines.diffusion_rls import DiffusionRLS
from dokl.baselines.feature_admm import FeatureADMM
from dokl.baselines.growing import KernelSum
from dokl.baselines.klms import KLMS
from dokl.baselines.linear_lms import LinearLMS, LinearModel
from dokl.baselines.on_features import FeatureModel
from dokl.baselines.pegasos import KernelPegasos
from dokl.baselines.qklms import QKLMS
from dokl.baselines.runs import RECORDABLE, Baseline, BaselineTrace, run

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
