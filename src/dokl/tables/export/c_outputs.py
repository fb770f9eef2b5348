"""The part of a C source that makes answers of scores: numbers, labels, probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dokl.learning.calibration import FARTHEST, SMOOTH
from dokl.tables.export.c_parts import quoted
from dokl.tables.export.formula import LabelAnswer, NumberAnswer

if TYPE_CHECKING:
    from dokl.tables.export.c_source import Writing


def declarations(w: Writing) -> list[str]:
    """Functions that others call."""
    answer, n, out = w.formula.answer, w.name, list[str]()
    if isinstance(answer, LabelAnswer):
        out.append(f"extern const char *const {n}_labels[{n.upper()}_CLASSES];")
        out += [f"{_probabilities_head(w)};"] if answer.probability else []
    elif answer.width is not None:
        out.append(f"{_interval_head(w)};")
    return [*out, f"{_predict_head(w)};"]


def functions(w: Writing) -> list[str]:
    """What is made of scores."""
    labels = isinstance(w.formula.answer, LabelAnswer)
    return label_outputs(w) if labels else number_outputs(w)


def _predict_head(w: Writing) -> str:
    n = w.name
    row = f"{w.state}const {n}_row *row"
    if isinstance(w.formula.answer, LabelAnswer):
        return f"{w.api}int {n}_predict({row})"
    if w.formula.m == 1:
        return f"{w.api}{n}_real {n}_predict({row})"
    return f"{w.api}void {n}_predict({row}, {n}_real f[{n.upper()}_OUTPUTS])"


def _interval_head(w: Writing) -> str:
    n, m = w.name, f"[{w.name.upper()}_OUTPUTS]"
    ends = f"{n}_real lower{m}, {n}_real upper{m}"
    return f"{w.api}void {n}_interval({w.state}const {n}_row *row, {ends})"


def _probabilities_head(w: Writing) -> str:
    n = w.name
    return (
        f"{w.api}void {n}_probabilities({w.state}const {n}_row *row, "
        f"{n}_real p[{n.upper()}_CLASSES])"
    )


def number_outputs(w: Writing) -> list[str]:
    """Predictions, and intervals of one width."""
    answer, n, big = w.formula.answer, w.name, w.name.upper()
    assert isinstance(answer, NumberAnswer)
    one = w.formula.m == 1
    scores = f"    {n}_scores({w.given}row, f);\n"
    body = f"    {n}_real f[1];\n{scores}    return f[0];\n" if one else scores
    out = [f"{_predict_head(w)}\n{{\n{body}}}\n"]
    if answer.width is not None:
        out.append(f"""/* holds {100 * answer.level:g} % of targets */
{_interval_head(w)}
{{
    static const {n}_real width[] = {w.reals.array(answer.width)};
    int k;
    {n}_scores({w.given}row, lower);
    for (k = 0; k < {big}_OUTPUTS; k++) {{
        upper[k] = lower[k] + width[k];
        lower[k] -= width[k];
    }}
}}
""")
    return out


def label_outputs(w: Writing) -> list[str]:
    """Labels as texts, the number of the best, and probabilities where there are any."""
    answer, n, big = w.formula.answer, w.name, w.name.upper()
    assert isinstance(answer, LabelAnswer)
    texts = ", ".join(quoted(str(label)) for label in answer.labels.tolist())
    out = [f"{w.data}char *const {n}_labels[{big}_CLASSES] = {{{texts}}};\n"]
    if answer.probability == "calibrated":
        out += [
            _levels(w, answer),
            f"{_predict_head(w)}\n{{\n{_largest(w, 'levels', 'CLASSES')}}}\n",
        ]
        return [*out, _softmax(w)]
    two = f"    {n}_real f[1];\n    {n}_scores({w.given}row, f);\n    return f[0] > 0;\n"
    body = two if w.formula.m == 1 else _largest(w, "scores", "OUTPUTS")
    out.append(f"{_predict_head(w)}\n{{\n{body}}}\n")
    return [*out, _logistic(w)] if answer.probability else out


def _largest(w: Writing, of: str, count: str) -> str:
    n, big = w.name, w.name.upper()
    return f"""    {n}_real f[{big}_{count}];
    int k, best = 0;
    {n}_{of}({w.given}row, f);
    for (k = 1; k < {big}_{count}; k++)
        if (f[k] > f[best])
            best = k;
    return best;
"""


def _levels(w: Writing, answer: LabelAnswer) -> str:
    """Log probabilities but for a constant, by the online calibration."""
    n, big, r = w.name, w.name.upper(), w.reals
    assert answer.slopes is not None
    assert answer.bias is not None
    far, first, second = (r.number(v) for v in (FARTHEST, *answer.slopes))
    score = "k ? f[0] : -f[0]" if w.formula.m == 1 else "f[k]"
    return f"""static void {n}_levels({w.state}const {n}_row *row, {n}_real *level)
{{
    static const {n}_real bias[] = {r.array(answer.bias)};
    {n}_real f[{big}_OUTPUTS];
    int k;
    {n}_scores({w.given}row, f);
    for (k = 0; k < {big}_CLASSES; k++) {{
        const {n}_real g = {score};
        const {n}_real near = g < -{far} ? -{far} : g > {far} ? {far} : g;
        const {n}_real share = {r.number(0.5)} * ({r.number(1.0)} + near);
        const {n}_real root = sqrt{r.end}(share * share + {r.number(4 * SMOOTH**2)});
        const {n}_real log_share = log{r.end}({r.number(0.5)} * (share + root));
        level[k] = {first} * near + {second} * log_share + bias[k];
    }}
}}
"""


def _softmax(w: Writing) -> str:
    n, big, r = w.name, w.name.upper(), w.reals
    return f"""{_probabilities_head(w)}
{{
    {n}_real most, sum = 0;
    int k;
    {n}_levels({w.given}row, p);
    most = p[0];
    for (k = 1; k < {big}_CLASSES; k++)
        most = p[k] > most ? p[k] : most;
    for (k = 0; k < {big}_CLASSES; k++)
        sum += p[k] = exp{r.end}(p[k] - most);
    for (k = 0; k < {big}_CLASSES; k++)
        p[k] /= sum;
}}
"""


def _logistic(w: Writing) -> str:
    n, big, r = w.name, w.name.upper(), w.reals
    half, one = r.number(0.5), r.number(1.0)
    if w.formula.m == 1:
        return f"""{_probabilities_head(w)}
{{
    {n}_scores({w.given}row, p);
    p[1] = {half} * ({one} + tanh{r.end}({half} * p[0]));
    p[0] = {one} - p[1];
}}
"""
    return f"""{_probabilities_head(w)}
{{
    {n}_real sum = 0;
    int k;
    {n}_scores({w.given}row, p);
    for (k = 0; k < {big}_CLASSES; k++)
        sum += p[k] = {half} * ({one} + tanh{r.end}({half} * p[k]));
    for (k = 0; k < {big}_CLASSES; k++)
        p[k] = sum > 0 ? p[k] / sum : {one} / {big}_CLASSES;
}}
"""
