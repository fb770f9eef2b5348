"""The part of a C source that learns: a gradient step, a row at a time. See `c_source`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dokl.base.arrays import Array
from dokl.learning.columns import Moments
from dokl.learning.experts.scaling import Scaling
from dokl.learning.losses import Loss
from dokl.learning.schedules import Schedule
from dokl.tables.export.c_parts import Reals, doubles, inputs_call, raw_numbers
from dokl.tables.export.formula import LabelAnswer, is_waves, node_number
from dokl.tables.models import TableModel

if TYPE_CHECKING:
    from dokl.tables.export.c_source import Writing

SUMS = {"shift": "shift", "seen": "count", "total": "total", "square": "square"}


@dataclass(frozen=True)
class Learning:
    """What learning needs: theta, bias and their means (m, D) and (m,), how many rows and steps,
    the numbers of the method, and how columns are scaled; moments: None where that stays. unit: of
    the targets, where they are learned in one of their own.
    """

    theta: Array
    bias: Array
    mean_theta: Array | None
    mean_bias: Array | None
    count: int
    clock: int
    intercept: float
    average: str
    loss: Loss
    schedule: Schedule
    lam: float
    standardise: str
    moments: Moments | None
    unit: Scaling | None = None

    def units(self, reals: Reals, name: str) -> str:
        """Declarations of centre and size, as C has them; empty where targets are as they are."""
        if self.unit is None:
            return ""
        head = f"    static const {name}_real"
        return (
            f"{head} centre[] = {reals.array(self.unit.centre)};\n"
            f"{head} size[] = {reals.array(self.unit.size)};\n"
        )

    def predicts(self, reals: Reals) -> tuple[str, str]:
        """The vector that predicts, and its constant term, as C has them."""
        mean = "" if self.mean_theta is None else "mean_"
        bias = f"{reals.number(self.intercept)} * state->{mean}bias[k]" if self.intercept else "0"
        return f"state->{mean}theta", bias


def learning_of(model: TableModel, node: str | None) -> Learning | None:
    """How a model goes on learning; None where it does not in C."""
    made = model.estimator
    if not is_waves(made):
        return None
    method, state = made._problem.method, made.state_
    code = method.schedule.function is not None or not method.loss.builtin
    if code or (state.K > 1 and node is None):
        return None  # Python code, or the mean of nodes, which is nobody who learns
    k = 0 if node is None else node_number(made, node)
    mean_theta, mean_bias = (
        state.nodes[name][k] if name in state else None for name in ("mean_theta", "mean_bias")
    )
    prepared, exchange = model.preprocessor, made.exchange_
    moving = prepared is not None and not prepared.frozen and bool(prepared.scaled)
    return Learning(
        state.theta[k], state.bias[k], mean_theta, mean_bias,
        int(state.count[k]), int(state.clock), exchange.intercept, exchange.average,
        method.loss, method.schedule, method.lam,
        "off" if prepared is None else prepared.standardise,
        prepared.moments if moving and prepared is not None else None, made._unit,
    )  # fmt: skip


# -- the header --------------------------------------------------------------------------------
def types(w: Writing) -> list[str]:
    """The state: all that changes, for as many learners as are wanted."""
    if w.learning is None:
        return []
    size, n = f"[{w.name.upper()}_OUTPUTS]", w.name
    vector = f"{size}[{w.name.upper()}_FEATURES]"
    members = [f"    {n}_real theta{vector};", f"    {n}_real bias{size};"]
    if w.learning.mean_theta is not None:
        members += [f"    {n}_real mean_theta{vector};", f"    {n}_real mean_bias{size};"]
    members += ["    unsigned long count; /* rows */", "    unsigned long clock; /* steps */"]
    if w.learning.moments is not None:
        members += [f"    double {name}[{len(w.learning.moments.count)}];" for name in SUMS]
    words = "/* All that learning changes; begin with a copy of what was learned already. */"
    return [words, "typedef struct {", *members, f"}} {n}_state;\n"]


def declarations(w: Writing) -> list[str]:
    """Functions that others call."""
    if w.learning is None:
        return []
    return [
        f"extern const {w.name}_state {w.name}_learned;",
        f"{_learn_head(w)};",
        f"{_combine_head(w)};",
    ]


# -- functions ---------------------------------------------------------------------------------
def functions(w: Writing) -> list[str]:
    """What was learned, and how it goes on."""
    if w.learning is None:
        return []
    follow = [] if w.learning.moments is None else [_follow(w, len(w.learning.moments.count))]
    return [_learned(w, w.learning), *follow, _slope(w, w.learning.loss), _step(w, w.learning),
            _learn(w, w.learning), _combine(w)]  # fmt: skip


def _learned(w: Writing, made: Learning) -> str:
    """The state as it is now, member by member."""
    r = w.reals
    parts = [r.array(made.theta), r.array(made.bias)]
    if made.mean_theta is not None and made.mean_bias is not None:
        parts += [r.array(made.mean_theta), r.array(made.mean_bias)]
    parts += [f"{made.count}UL", f"{made.clock}UL"]
    if made.moments is not None:
        parts += [doubles(getattr(made.moments, name)) for name in SUMS.values()]
    return f"{w.data}{w.name}_state {w.name}_learned = {{" + ",\n".join(parts) + "};\n"


def _follow(w: Writing, p: int) -> str:
    """Sums about the first value of each column, as `dokl.preprocess.Moments` has them."""
    return f"""static void {w.name}_follow({w.name}_state *state, const {w.name}_row *row)
{{
    const double raw[] = {raw_numbers(w)};
    int i;
    for (i = 0; i < {p}; i++)
        if (!isnan(raw[i])) {{
            double off;
            if (!(state->seen[i] > 0))
                state->shift[i] = raw[i];
            off = raw[i] - state->shift[i];
            state->seen[i] += 1;
            state->total[i] += off;
            state->square[i] += off * off;
        }}
}}
"""


def _slope(w: Writing, loss: Loss) -> str:
    """The derivative of the loss in the prediction."""
    r = w.reals
    one, half, p = r.number(1.0), r.number(0.5), r.number(0.0 if loss.p is None else loss.p)
    below = r.number(1.0 - (loss.p or 0.0))
    text = {
        "squared": "f - y",
        "hinge": f"y * f < {one} ? -y : 0",
        "squared_hinge": f"y * f < {one} ? -y * ({one} - y * f) : 0",
        "logistic": f"-{half} * y * ({one} - tanh{r.end}({half} * y * f))",
        "huber": f"f - y > {p} ? {p} : f - y < -{p} ? -{p} : f - y",
        "absolute": f"f > y ? {one} : f < y ? -{one} : 0",
        "epsilon_insensitive": f"f - y > {p} ? {one} : y - f > {p} ? -{one} : 0",
        "quantile": f"f > y ? {below} : f < y ? -{p} : 0",
    }[loss.name]
    n = w.name
    head = f"/* {loss.name} loss */\nstatic {n}_real {n}_slope({n}_real y, {n}_real f)"
    return f"{head}\n{{\n    return {text};\n}}\n"


def _step(w: Writing, made: Learning) -> str:
    """How long the step of a row is, by its number and |z|^2."""
    r, s, n = w.reals, made.schedule, w.name
    count = f"(({n}_real)count + {r.number(s.offset)})"
    power = {0.0: "", 0.5: f" / sqrt{r.end}({count})", 1.0: f" / {count}"}
    length = r.number(s.scale) + power.get(s.power, f" / pow{r.end}({count}, {r.number(s.power)})")
    if s.normalised:
        length = f"{length} / ({r.number(s.eps)} + q)"
    unused = "" if s.power else "    (void)count;\n"
    unused += "" if s.normalised else "    (void)q;\n"
    head = f"static {n}_real {n}_step(unsigned long count, {n}_real q)"
    return f"{head}\n{{\n{unused}    return {length};\n}}\n"


def _learn_head(w: Writing) -> str:
    n = w.name
    given = f"{n}_state *state, const {n}_row *row"
    if isinstance(w.formula.answer, LabelAnswer):
        return f"{w.api}void {n}_learn({given}, int label)"
    target = f"{n}_real y" if w.formula.m == 1 else f"const {n}_real y[{n.upper()}_OUTPUTS]"
    return f"{w.api}void {n}_learn({given}, {target})"


def _learn(w: Writing, made: Learning) -> str:
    n, big, r = w.name, w.name.upper(), w.reals
    c, labels, one = made.intercept, isinstance(w.formula.answer, LabelAnswer), w.formula.m == 1
    own = ("label == 1" if one else "label == k") if labels else ""
    target = f"{own} ? {r.number(1.0)} : -{r.number(1.0)}" if labels else "y" if one else "y[k]"
    target = target if made.unit is None else f"({target} - centre[k]) / size[k]"
    check = _check(w, labels, one)
    follow = "" if made.moments is None else f"    {n}_follow(state, row);\n"
    start = f"{r.number(c)} * state->bias[k]" if c else "0"
    shrunk = f"({r.number(1.0)} - mu * {r.number(made.lam)}) * " if made.lam else ""
    bias = f"        state->bias[k] -= pull * {r.number(c)};\n" if c else ""
    return f"""/* Learn one row; one without a target, or of no known class, is passed over. */
{_learn_head(w)}
{{
{made.units(r, n)}    {n}_real x[{big}_INPUTS], z[{big}_FEATURES], q = {r.number(c * c)}, mu;
    int i, k;
{follow}{check}    {inputs_call(w)}
    {n}_features(x, z);
    for (i = 0; i < {big}_FEATURES; i++)
        q += z[i] * z[i];
    state->count += 1;
    state->clock += 1;
    mu = {n}_step(state->count, q);
    for (k = 0; k < {big}_OUTPUTS; k++) {{
        const {n}_real target = {target};
        {n}_real *theta = state->theta[k], pull, f = {start};
        for (i = 0; i < {big}_FEATURES; i++)
            f += theta[i] * z[i];
        pull = mu * {n}_slope(target, f);
        for (i = 0; i < {big}_FEATURES; i++)
            theta[i] = {shrunk}theta[i] - pull * z[i];
{bias}    }}
{_average(w, made)}}}
"""


def _check(w: Writing, labels: bool, one: bool) -> str:
    """Pass over rows without a target."""
    big = w.name.upper()
    if labels:
        return f"    if (label < 0 || label >= {big}_CLASSES)\n        return;\n"
    if one:
        return "    if (!isfinite(y))\n        return;\n"
    loop = f"    for (k = 0; k < {big}_OUTPUTS; k++)\n"
    return f"{loop}        if (!isfinite(y[k]))\n            return;\n"


def _average(w: Writing, made: Learning) -> str:
    """The running mean of the vectors, as `dokl.diffusion.average_gain` weighs them."""
    if made.mean_theta is None:
        return ""
    n, big, r = w.name, w.name.upper(), w.reals
    uniform = made.average == "uniform"
    gain = f"{r.number(1.0 if uniform else 2.0)} / (({n}_real)state->clock"
    gain += ")" if uniform else f" + {r.number(1.0)})"
    return f"""    for (k = 0; k < {big}_OUTPUTS; k++) {{
        const {n}_real gain = {gain};
        for (i = 0; i < {big}_FEATURES; i++)
            state->mean_theta[k][i] += gain * (state->theta[k][i] - state->mean_theta[k][i]);
        state->mean_bias[k] += gain * (state->bias[k] - state->mean_bias[k]);
    }}
"""


def _combine_head(w: Writing) -> str:
    n = w.name
    return f"{w.api}void {n}_combine({n}_state *state, {n}_real weight, const {n}_state *other)"


def _combine(w: Writing) -> str:
    big = w.name.upper()
    return f"""/* Be a node: take a neighbour's vector into the own one, with this weight. */
{_combine_head(w)}
{{
    int i, k;
    for (k = 0; k < {big}_OUTPUTS; k++)
        for (i = 0; i < {big}_FEATURES; i++)
            state->theta[k][i] += weight * (other->theta[k][i] - state->theta[k][i]);
}}
"""
