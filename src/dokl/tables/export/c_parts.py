"""The part of a C source that goes from raw columns to scores, and the words of C99 for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.columns.times import DAY
from dokl.learning.experts.folding import Bumps, Folded, Part, Waves
from dokl.learning.experts.ranks import Ranks
from dokl.learning.experts.scaling import CLIP, limits
from dokl.tables.export.fewer_centres import grid_step
from dokl.tables.export.formula import LabelAnswer

if TYPE_CHECKING:
    from dokl.tables.export.c_source import Writing

KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "auto break case char const continue default do double else enum extern float for goto if "
        "inline int long register restrict return short signed sizeof static struct switch "
        "typedef union unsigned void volatile while asm",
    )
)
PER_LINE = 12


@dataclass(frozen=True)
class Reals:
    """How numbers of one precision are written."""

    precision: str

    @property
    def end(self) -> str:
        """What functions and constants of this precision end in."""
        return "f" if self.precision == "float" else ""

    def number(self, value: float) -> str:
        """A constant, to the last bit."""
        if self.precision == "float":
            with np.errstate(over="ignore"):
                text = repr(float(str(np.float32(value))))
            return f"{text}f"
        return repr(float(value))

    def array(self, values: Array) -> str:
        """What stands between the braces of an array, nested as the array is."""
        return braces(np.asarray(values), self.number)


def doubles(values: Array) -> str:
    """An array of doubles, whatever the precision of the rest."""
    return braces(np.asarray(values), lambda value: repr(float(value)))


def braces(values: Array, number: object) -> str:
    """Nested braces with some numbers a line."""
    if values.ndim > 1:
        return "{" + ",\n".join(braces(part, number) for part in values) + "}"
    texts = [number(value) for value in values.tolist()]  # type: ignore[operator]
    lines = (",".join(texts[i : i + PER_LINE]) for i in range(0, len(texts), PER_LINE))
    return "{" + ",\n ".join(lines) + "}"


def quoted(text: str) -> str:
    """A string constant; what is no plain ASCII, and question marks, as octal escapes."""
    out = []
    for byte in text.encode():
        plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        out.append(chr(byte) if plain else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def remark_of(text: str) -> str:
    """Any text, fit to stand in a comment."""
    return json.dumps(text).replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """{name: identifier}, each another one.

    >>> identifiers(["temp", "wind speed", "wind-speed", "2nd", "int"])
    {'temp': 'temp', 'wind speed': 'wind_speed', 'wind-speed': 'wind_speed_2', '2nd': 'c2nd',
     'int': 'int_'}
    """
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "column"
        plain = f"c{plain}" if plain[0].isdigit() else plain
        plain = f"{plain}_" if plain in KEYWORDS else plain
        taken, made, k = set(found.values()), plain, 2
        while made in taken:
            made, k = f"{plain}_{k}", k + 1
        found[name] = made
    return found


# -- from raw columns to scores -------------------------------------------------------------------
# cos(2 pi u) = s P(s^2), s = 1/4 - |u - rint(u)|: to float's last digit, and Taylor's for doubles.
POLY32 = (6.28318516, -41.34165503, 81.60100408, -76.54978247, 39.53670726)
POLY64 = tuple(
    float((-1) ** k * (2 * np.pi) ** (2 * k + 1) / np.prod(np.arange(1.0, 2 * k + 2)))
    for k in range(11)
)


# -- the header --------------------------------------------------------------------------------
def types(w: Writing) -> list[str]:
    """The kind of numbers, how many there are of everything, and a row."""
    f, n, big = w.formula, w.name, w.name.upper()
    out = [f"typedef {w.reals.precision} {n}_real;\n"]
    out += [f"#define {big}_INPUTS {f.d}", f"#define {big}_OUTPUTS {f.m}"]
    if isinstance(f.core, Waves):
        out.append(f"#define {big}_FEATURES {f.core.theta.shape[1]}")
    if isinstance(f.answer, LabelAnswer):
        out.append(f"#define {big}_CLASSES {len(f.answer.labels)}")
    words = "/* A row: NAN stands for a missing number, -1 for a missing or unknown text. */"
    return [*out, "", words, "typedef struct {", *_members(w), f"}} {n}_row;\n"]


def _members(w: Writing) -> list[str]:
    raw = w.formula.raw
    if raw is None:
        return [f"    double x[{w.name.upper()}_INPUTS];"]
    out = []
    for name, member in identifiers(raw.columns).items():
        if name in raw.numeric:
            out.append(f"    double {member}; /* {remark_of(name)} */")
        elif name in raw.times:
            out.append(f"    double {member}; /* {remark_of(name)}: seconds since 1970, UTC */")
        else:
            levels = ", ".join(f"{i} {remark_of(k)}" for i, k in enumerate(raw.levels[name]))
            out.append(f"    int {member}; /* {remark_of(name)}: {levels} */")
    return out


def declarations(w: Writing) -> list[str]:
    """Functions that others call."""
    levels = [f"{_level_head(w, member)};" for member in _text_members(w).values()]
    return [*levels, f"{_scores_head(w)};"]


# -- raw columns -------------------------------------------------------------------------------
def _text_members(w: Writing) -> dict[str, str]:
    """{column: member} of the columns of text."""
    raw = w.formula.raw
    if raw is None:
        return {}
    names = identifiers(raw.columns)
    return {name: names[name] for name in raw.levels}


def _level_head(w: Writing, member: str) -> str:
    return f"{w.api}int {w.name}_{member}_level(const char *text)"


def _level(w: Writing, member: str, levels: tuple[str, ...]) -> str:
    known = ", ".join(map(quoted, levels))
    return f"""{_level_head(w, member)}
{{
    static const char *const known[] = {{{known}}};
    int i;
    for (i = 0; i < {len(levels)}; i++)
        if (strcmp(text, known[i]) == 0)
            return i;
    return -1;
}}
"""


def inputs(w: Writing) -> list[str]:
    """Functions from rows to x."""
    raw, big = w.formula.raw, w.name.upper()
    if raw is None:
        fill = f"    int i;\n    for (i = 0; i < {big}_INPUTS; i++)\n        x[i] = "
        return [_inputs(w, f"{fill}({_kind(w)})row->x[i];\n")]
    members = _text_members(w)
    out = [_level(w, members[k], v or ("",)) for k, v in raw.levels.items()]
    out += [_circle(w)] if any(parts.rounds for parts in raw.times.values()) else []
    p, body = len(raw.centre), "    int i;\n" if raw.levels or len(raw.centre) else ""
    if p:
        body = f"    const double raw[] = {raw_numbers(w)};\n{body}{_scaling(w)}"
    p, body = _circles(w, p, body)
    if raw.levels:
        body += f"    for (i = {p}; i < {big}_INPUTS; i++)\n        x[i] = 0;\n"
    start = p
    for name, levels in raw.levels.items():
        at = f"row->{members[name]}"
        body += f"    if ({at} >= 0 && {at} < {len(levels)})\n        x[{start} + {at}] = 1;\n"
        start += len(levels)
    return [*out, _inputs(w, body)]


def _circles(w: Writing, at: int, body: str) -> tuple[int, str]:
    """Places of times on circles from x[at] on, behind what is there; and where the rest begins."""
    raw = w.formula.raw
    assert raw is not None
    names = identifiers(raw.columns)
    for name, parts in raw.times.items():
        for seconds in parts.rounds:
            turns = f"row->{names[name]} / {seconds!r}"
            body += f"    {w.name}_circle({turns}, x + {at});\n"
            at += 2
    return at, body


def _circle(w: Writing) -> str:
    return f"""static void {w.name}_circle(double turns, {_kind(w)} *x)
{{
    const double angle = 6.283185307179586 * (turns - floor(turns));
    x[0] = ({_kind(w)})(isnan(turns) ? 0 : cos(angle));
    x[1] = ({_kind(w)})(isnan(turns) ? 0 : sin(angle));
}}
"""


def raw_numbers(w: Writing) -> str:
    """The numeric columns of a row and its days since the start, in the order of x."""
    raw = w.formula.raw
    assert raw is not None
    names = identifiers(raw.columns)
    days = [f"(row->{names[k]} - {raw.times[k].start!r}) / {DAY!r}" for k in raw.since]
    return "{" + ", ".join([*(f"row->{names[name]}" for name in raw.numeric), *days]) + "}"


def _kind(w: Writing) -> str:
    """x is as precise as the row where experts bring it to unit size themselves."""
    return f"{w.name}_real" if isinstance(w.formula.core, Waves) else "double"


def _inputs(w: Writing, body: str) -> str:
    moving = w.learning is not None and w.learning.moments is not None
    state = w.state if moving else ""
    head = f"static void {w.name}_inputs({state}const {w.name}_row *row, {_kind(w)} *x)"
    return f"{head}\n{{\n{body}}}\n"


def _scaling(w: Writing) -> str:
    """The numbers of a row, by what was learned, or by sums that go along in the state."""
    raw = w.formula.raw
    assert raw is not None
    p, kind = len(raw.centre), _kind(w)
    if w.learning is None or w.learning.moments is None:
        return f"""    static const double centre[] = {doubles(raw.centre)};
    static const double factor[] = {doubles(raw.factor)};
    static const double fill[] = {doubles(raw.fill)};
    for (i = 0; i < {p}; i++)
        x[i] = ({kind})(isnan(raw[i]) ? fill[i] : (raw[i] - centre[i]) * factor[i]);
"""
    mean = """        const double n = state->seen[i] > 1 ? state->seen[i] : 1;
        const double mean = state->total[i] / n;
"""
    if w.learning.standardise == "off":
        value = f"        x[i] = ({kind})(isnan(raw[i]) ? state->shift[i] + mean : raw[i]);\n"
    else:
        value = f"""        const double variance = state->square[i] / n - mean * mean;
        const double off = raw[i] - state->shift[i] - mean;
        x[i] = ({kind})(isnan(off) || !(variance > 0) ? 0 : off / sqrt(variance));
"""
    return f"    for (i = 0; i < {p}; i++) {{\n{mean}{value}    }}\n"


# -- scores ------------------------------------------------------------------------------------
def scores(w: Writing) -> list[str]:
    """Functions from rows to scores."""
    core = w.formula.core
    return _waves(w, core) if isinstance(core, Waves) else _all_parts(w, core)


def _scores_head(w: Writing) -> str:
    n = w.name
    return f"{w.api}void {n}_scores({w.state}const {n}_row *row, {n}_real f[{n.upper()}_OUTPUTS])"


def inputs_call(w: Writing) -> str:
    """How x is made."""
    moving = w.learning is not None and w.learning.moments is not None
    return f"{w.name}_inputs({'state, ' if moving else ''}row, x);"


def _waves(w: Writing, core: Waves) -> list[str]:
    n, big, r = w.name, w.name.upper(), w.reals
    theta, constant = "theta", "constant[k]"
    size = f"[{big}_OUTPUTS][{big}_FEATURES]"
    fixed = f"""    static const {n}_real theta{size} = {r.array(core.theta)};
    static const {n}_real constant[] = {r.array(core.constant)};
"""
    result = "sum"
    if w.learning is not None:
        (theta, constant), fixed = w.learning.predicts(r), w.learning.units(r, n)
        result = "sum" if w.learning.unit is None else "sum * size[k] + centre[k]"
    return [_wave(w, core.scale), _features(w, core), f"""{_scores_head(w)}
{{
{fixed}    {n}_real x[{big}_INPUTS], z[{big}_FEATURES];
    int i, k;
    {inputs_call(w)}
    {n}_features(x, z);
    for (k = 0; k < {big}_OUTPUTS; k++) {{
        {n}_real sum = {constant};
        for (i = 0; i < {big}_FEATURES; i++)
            sum += {theta}[k][i] * z[i];
        f[k] = {result};
    }}
}}
"""]  # fmt: skip


def _wave(w: Writing, scale: float) -> str:
    n, r = w.name, w.reals
    first, *rest = POLY32 if r.precision == "float" else POLY64
    polynomial = r.number(scale * rest[-1])
    for factor in reversed(rest[:-1]):
        polynomial = f"{r.number(scale * factor)} + q * ({polynomial})"
    return f"""/* {scale:.6g} cos(2 pi u) */
static {n}_real {n}_wave({n}_real u)
{{
    const {n}_real s = {r.number(0.25)} - fabs{r.end}(u - rint{r.end}(u)), q = s * s;
    return s * ({r.number(scale * first)} + q * ({polynomial}));
}}
"""


def _features(w: Writing, core: Waves) -> str:
    """z, from frequencies in turns: omega'x / (2 pi) needs no division by pi to be reduced."""
    n, big, r, F = w.name, w.name.upper(), w.reals, core.omega.shape[1]
    omega = r.array(core.omega / (2 * np.pi))
    phases = "" if core.phases is None else (
        f"    static const {n}_real phase[] = {r.array(core.phases / (2 * np.pi))};\n")  # fmt: skip
    start = "0" if core.phases is None else "phase[i]"
    pair = f"        z[{F} + i] = {n}_wave(z[i] - {r.number(0.25)});\n"
    return f"""static void {n}_features(const {n}_real *x, {n}_real *z)
{{
    static const {n}_real omega[{big}_INPUTS][{F}] = {omega};
{phases}    int i, j;
    for (i = 0; i < {F}; i++)
        z[i] = {start};
    for (j = 0; j < {big}_INPUTS; j++)
        for (i = 0; i < {F}; i++)
            z[i] += x[j] * omega[j][i];
    for (i = 0; i < {F}; i++) {{
{pair if core.phases is None else ""}        z[i] = {n}_wave(z[i]);
    }}
}}
"""


def _all_parts(w: Writing, core: tuple[Part, ...]) -> list[str]:
    """f: the sum of all parts."""
    n, big = w.name, w.name.upper()
    banks = [part for part in core if isinstance(part, Folded)]
    if len(banks) < len(core):
        raise BadInput(
            "this node's network shares sums on a map that was drawn: write .onnx instead of C"
        )
    parts = [text for i, part in enumerate(banks) for text in _part(w, i, part)]
    calls = "".join(f"    {n}_part_{i}(x, f);\n" for i in range(len(core)))
    return [*parts, f"""{_scores_head(w)}
{{
    double x[{big}_INPUTS];
    int k;
    {inputs_call(w)}
    for (k = 0; k < {big}_OUTPUTS; k++)
        f[k] = 0;
{calls}}}
"""]  # fmt: skip


def _part(w: Writing, number: int, core: Folded) -> list[str]:
    """f += what one part predicts."""
    n, big, r = w.name, w.name.upper(), w.reals
    bumps = [each for each in core.bumps if len(each.centres)]
    texts = [_bumps(w, f"{number}_{i}", each) for i, each in enumerate(bumps)]
    calls = "".join(
        f"    {n}_bumps_{number}_{i}({'ranked' if each.ranked else 'u'}, g);\n"
        for i, each in enumerate(bumps)
    )
    more = ""
    if core.ranks is not None:
        texts.append(_ranks(w, number, core.ranks))
        more, calls = f", ranked[{big}_INPUTS]", f"    {n}_ranks_{number}(u, ranked);\n{calls}"
    inward, most, beyond = "(x[j] - centre[j]) / size[j]", str(CLIP), ""
    if core.extent is not None:
        most = "most[j]"
        beyond = f"    static const double most[] = {doubles(np.asarray(limits(core.extent)))};\n"
    return [*texts, f"""static void {n}_part_{number}(const double *x, {n}_real *f)
{{
    static const double centre[] = {doubles(core.inputs.centre)};
    static const double size[] = {doubles(core.inputs.size)};
{beyond}    static const {n}_real slope[{big}_OUTPUTS][{big}_INPUTS] = {r.array(core.slope)};
    static const {n}_real base[] = {r.array(core.base)};
    static const {n}_real target_centre[] = {r.array(core.targets.centre)};
    static const {n}_real target_size[] = {r.array(core.targets.size)};
    {n}_real u[{big}_INPUTS]{more}, g[{big}_OUTPUTS];
    int j, k;
    for (j = 0; j < {big}_INPUTS; j++) {{
        const double v = {inward};
        u[j] = ({n}_real)(v < -{most} ? -{most} : v > {most} ? {most} : v);
    }}
    for (k = 0; k < {big}_OUTPUTS; k++) {{
        g[k] = base[k];
        for (j = 0; j < {big}_INPUTS; j++)
            g[k] += slope[k][j] * u[j];
    }}
{calls}    for (k = 0; k < {big}_OUTPUTS; k++)
        f[k] += g[k] * target_size[k] + target_centre[k];
}}
"""]  # fmt: skip


def _ranks(w: Writing, number: int, ranks: Ranks) -> str:
    """Standardised inputs by their ranks: straight lines between values and their scores."""
    n, big, r, K = w.name, w.name.upper(), w.reals, len(ranks.values)
    return f"""static void {n}_ranks_{number}(const {n}_real *u, {n}_real *ranked)
{{
    static const {n}_real value[{big}_INPUTS][{K}] = {r.array(ranks.values.T)};
    static const {n}_real score[{big}_INPUTS][{K}] = {r.array(ranks.scores.T)};
    int i, j;
    for (j = 0; j < {big}_INPUTS; j++) {{
        for (i = 0; i < {K} && u[j] > value[j][i]; i++)
            ;
        if (i == 0 || i == {K})
            ranked[j] = score[j][i == 0 ? 0 : {K - 1}];
        else
            ranked[j] = score[j][i - 1] + (score[j][i] - score[j][i - 1])
                * ((u[j] - value[j][i - 1]) / (value[j][i] - value[j][i - 1]));
    }}
}}
"""


def _bumps(w: Writing, number: str, each: Bumps) -> str:
    """f += heights * k(centres, u) of one map."""
    n, big, r, M = w.name, w.name.upper(), w.reals, len(each.centres)
    step = grid_step(each.centres)
    unit, centres = 1.0 if step is None else step, f"{n}_real centre[{M}][{big}_INPUTS] = "
    if step is None:
        centres += r.array(each.centres)
    else:  # 16 bits a number; lengths and distances are counted in steps of their grid
        whole = np.rint(each.centres / step).astype(int)
        centres = f"short centre[{M}][{big}_INPUTS] = {braces(whole, str)}"
    kernel = f"near = exp{r.end}({r.number(-0.5 * unit**2)} * apart);"
    if each.kernel != "gaussian":
        kernel = f"""apart = sqrt{r.end}({r.number(3.0 * unit**2)} * apart);
        near = ({r.number(1.0)} + apart) * exp{r.end}(-apart);"""
    far = ""
    if each.apart.any():  # of other nodes' centres, beside what the inputs say
        far = f"    static const {n}_real far[] = {r.array(each.apart / unit**2)};\n"
    begin = "far[i]" if far else "0"
    slope, line = "", ""
    if each.slope is not None and each.slope.any():
        slope = f"    static const {n}_real slope[{big}_OUTPUTS][{big}_INPUTS] = "
        slope += f"{r.array(each.slope)};\n"
        line = f"""    for (i = 0; i < {big}_OUTPUTS; i++)
        for (j = 0; j < {big}_INPUTS; j++)
            f[i] += slope[i][j] * u[j];
"""
    return f"""static void {n}_bumps_{number}(const {n}_real *u, {n}_real *f)
{{
    static const {n}_real length[] = {r.array(each.lengths * unit)};
    static const {centres};
    static const {n}_real height[{M}][{big}_OUTPUTS] = {r.array(each.heights.T)};
{far}{slope}    {n}_real v[{big}_INPUTS];
    int i, j;
{line}    for (j = 0; j < {big}_INPUTS; j++)
        v[j] = u[j] / length[j];
    for (i = 0; i < {M}; i++) {{
        {n}_real apart = {begin}, near;
        for (j = 0; j < {big}_INPUTS; j++)
            apart += (v[j] - centre[i][j]) * (v[j] - centre[i][j]);
        {kernel}
        for (j = 0; j < {big}_OUTPUTS; j++)
            f[j] += near * height[i][j];
    }}
}}
"""
