"""What a plan is: choices, what they are expected to bring, and what each rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dokl.base.errors import BadInput
from dokl.learning import kernels, schedules
from dokl.learning.schedules import Schedule
from dokl.simulation.theory import PredictedCurve


@dataclass(frozen=True)
class Budget:
    """What a node may spend. rate: its samples a second; the limits are None where there is none.

    bytes_per_second: sent to all neighbours together; microseconds: per sample, on this machine;
    memory: bytes of vectors and frequencies; accuracy: the error wanted (mean square or rate).
    """

    rate: float = 1.0
    bytes_per_second: float | None = None
    microseconds: float | None = None
    memory: float | None = None
    accuracy: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that nothing can keep."""
        for name in ("rate", "bytes_per_second", "microseconds", "memory", "accuracy"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadInput(f"budget: {name} must be above 0, got {value!r}")


@dataclass(frozen=True)
class Advice:
    """One line of a plan: what, how much, and the assumption it rests on."""

    name: str
    value: Any
    rests_on: str


@dataclass(frozen=True)
class Plan:
    """Everything to set up a learner, and what to expect of it.

    lines: the choices and predictions, each with its assumption. curve, curve_alone: predicted
    learning curves together and alone (regression only). lengths: the width along each input,
    where learned ones were better than one for all. spent: samples times features of all
    pilot runs. method: "bank", the experts without settings; or "gradient" with the settings here,
    where a budget, a network or the size asked for leaves no room for them. pilot: how the experts
    did on the sample, an `ExpertPilot`.
    """

    task: str
    kernel: str
    sigma: float
    D: int
    variant: str
    loss: str
    schedule: Schedule
    alpha: float
    average: str
    every: int
    modes: int | None
    lines: list[Advice] = field(repr=False)
    curve: PredictedCurve | None = field(default=None, repr=False)
    curve_alone: PredictedCurve | None = field(default=None, repr=False)
    spent: float = 0.0
    lengths: tuple[float, ...] | None = None
    method: str = "gradient"
    pilot: Any = field(default=None, repr=False)

    @property
    def widths(self) -> str:
        """Sigma as an option of commands."""
        widths = (self.sigma,) if self.lengths is None else self.lengths
        return ",".join(f"{width:.4g}" for width in widths)

    @property
    def train_options(self) -> str:
        """What `dokl train` needs to learn by gradients with these settings."""
        step = f"--alpha {self.alpha:g}" if self.alpha else f"--step {self.schedule.scale:g}"
        return (
            f"--method gradient --kernel {self.kernel} --sigma {self.widths} "
            f"--components {self.D} --features {self.variant} --loss {self.loss} {step}"
        )

    @property
    def network_options(self) -> str:
        """What `dokl network new` needs to do the same; agents return no averages."""
        step = (
            f"--schedule pegasos --lam {self.alpha:g} -p n0={self.schedule.offset:g}"
            if self.alpha
            else f"--schedule normalised --mu {self.schedule.scale:g}"
        )
        return (
            f"--kernel {self.kernel} --sigma {self.widths} --components {self.D} "
            f"--variant {self.variant} --loss {self.loss} {step} --every-samples {self.every}"
        )

    def estimator(self, method: str | None = None, **changes: Any) -> Any:
        """A single-node estimator as advised, but for the changes; method: "bank" for experts,
        "gradient" for the settings of this plan, None for what is advised. Experts have the seed
        of their pilot and of `dokl train`, so that the same rows give the same model.
        """
        from dokl import estimators as kinds

        classifying = self.task == "classification"
        if (method or self.method) == "bank":
            made = kinds.AutoClassifier if classifying else kinds.AutoRegressor
            return made(**{"random_state": 0} | changes)
        kind = kinds.KernelClassifier if classifying else kinds.KernelRegressor
        return kind(**self._parameters() | changes)

    def network(self, graph: object, **changes: object) -> Any:
        """A network of nodes that learn by gradient diffusion with these settings."""
        from dokl.estimators import DiffusionClassifier, DiffusionRegressor

        kind = DiffusionClassifier if self.task == "classification" else DiffusionRegressor
        return kind(graph, **{"every": self.every} | self._parameters() | changes)

    def _parameters(self) -> dict[str, Any]:
        kernel = kernels.resolve(self.kernel, self.sigma if self.lengths is None else self.lengths)
        return {
            "kernel": kernel,
            "n_components": self.D,
            "features": self.variant,
            "loss": self.loss,
            "step": self.schedule,
            "alpha": self.alpha,
            "average": self.average,
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON: choices, lines, and the curves thinned to about 100 points."""
        keys = ("task", "kernel", "sigma", "D", "variant", "loss", "alpha", "average", "every")
        out: dict[str, Any] = {key: getattr(self, key) for key in keys}
        out |= {"lengths": self.lengths, "method": self.method}
        out["train"] = self.train_options if self.method == "gradient" else ""
        out |= {"gradient": self.train_options, "network": self.network_options}
        out |= {"modes": self.modes, "schedule": self.schedule.spec(), "spent": self.spent}
        out["lines"] = [
            {"name": a.name, "value": a.value, "rests_on": a.rests_on} for a in self.lines
        ]
        for name, curve in (("curve", self.curve), ("curve_alone", self.curve_alone)):
            if curve is not None:
                step = max(1, len(curve.mse) // 100)
                out[name] = {"every": step, "mse": curve.mse[::step].tolist()}
        return out


def step_words(schedule: Schedule) -> str:
    """A schedule in words."""
    if schedule.name == "normalised":
        return f"{schedule.scale:.3g} / |z|^2, constant"
    if schedule.name == "pegasos":
        return f"1 / (alpha (n + {schedule.offset:.3g}))"
    if schedule == schedules.constant(schedule.scale):
        return f"{schedule.scale:.3g}, constant"
    return schedule.name
