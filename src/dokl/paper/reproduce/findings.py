"""What the results say, in sentences whose figures come from them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dokl.paper.reproduce import lines, texts
from dokl.paper.reproduce.results import FEWEST, STANDARD_ERRORS, PartResult, Row

COMPARED = (
    ("the paper's scheme", "the paper's"),
    ("dokl's defaults", "dokl's"),
    ("one node with all data, averaged", "one node with all data, av"),
)


def value(result: PartResult, group: str, start: str) -> float:
    """The figure of the first row of a group whose name begins so."""
    return row(result, group, start).ours


def row(result: PartResult, group: str, start: str) -> Row:
    """The row itself."""
    return next(r for r in result.rows if r.group == group and r.what.startswith(start))


def summary(results: Mapping[str, PartResult]) -> str:
    """A list: agreement, cooperation, theory, times, advice, gaps."""
    points = [texts.counts(results), *_cooperation(results), *_theory(results), *_advice(results)]
    points += _beyond(results)
    points += [_wall_times(results), _mnist_time(results), texts.missing(results)]
    return "\n".join(f"- {point}" for point in points if point)


def _wall_times(results: Mapping[str, PartResult]) -> str:
    """Wall time by kind of experiment."""
    kinds = {
        "Examples 1 to 4": ("fig1",), "Examples 5 to 8": ("fig3",), "Figure 2": ("fig2",),
        "Banana": ("table2-banana", "table3-banana"),
        "Waveform": ("table2-waveform", "table3-waveform"),
        "Adult": ("table2-adult", "table3-adult"), "beside the paper": ("beside",),
    }  # fmt: skip
    lines = []
    for words, starts in kinds.items():
        there = [r.made["seconds"] for name, r in results.items() if name.startswith(starts)]
        if there:
            lines.append(f"{words} {sum(there) / 60:.1f}")
    return (
        f"Wall time in minutes: {', '.join(lines)}. Other work on the same cores makes it longer: "
        "the processor time, given with each part, does not depend on that."
    )


def _mnist_time(results: Mapping[str, PartResult]) -> str:
    """Both tables come from the same runs, so the time of one is that of both."""
    found = [r.made for name, r in results.items() if name.endswith("-mnist")]
    if not found or found[0].get("quick"):
        return ""
    made, where = found[0], found[0]["machine"]
    return (
        f"MNIST at D = 100,000: {made['seconds'] / 60:.1f} minutes for all four networks, "
        f"{made['runs']} runs, on {where.get('gpu') or str(where['cores']) + ' cores'}."
    )


def _cooperation(results: Mapping[str, PartResult]) -> list[str]:
    gains = []
    for i, name in enumerate(("fig1a", "fig1b", "fig1c", "fig1d"), 1):
        if name in results:
            steady = [value(results[name], "steady state", who) for who in ("together", "alone")]
            gains.append(f"Example {i}: {steady[0] - steady[1]:+.1f} dB")
    if not gains:
        return []
    words = "Together against alone, steady state (negative: cooperation helps): "
    words += ", ".join(gains) + "."
    return [words + (" In Example 3 it hurts, and why is said there." if len(gains) > 2 else "")]


def _theory(results: Mapping[str, PartResult]) -> list[str]:
    out = []
    for name, who in (("fig1a", "alone"), ("fig1a", "together"), ("fig3b", "RFF-KLMS")):
        result = results.get(name)
        labels = [r.what for r in result.rows if r.group == "theory"] if result else []
        key = {"RFF-KLMS": "rff"}.get(who, who)
        if result and f"{lines.METHODS['mean-field']}: {key}" in labels:
            measured = value(result, "steady state", who)
            off = [
                value(result, "theory", f"{words}: {key}") - measured
                for words in lines.METHODS.values()
            ]
            out.append(
                f"Theory, {result.title.partition(':')[0]} {who}: the paper's small-step "
                f"recursion is off by {off[0]:+.2f} dB at the end, with fourth moments "
                f"{off[1]:+.2f} dB."
            )
    return out


def _advice(results: Mapping[str, PartResult]) -> list[str]:
    out = []
    for name in ("beside-banana", "beside-waveform", "beside-adult"):
        if name not in results:
            continue
        result = results[name]
        group = result.rows[0].group
        lines = []
        for words, start in COMPARED:
            first, last = (value(result, group, t) for t in _named(result, group, start))
            lines.append(f"{words} {first:.1f} / {last:.1f}")
        out.append(
            f"{result.title} ({group}), test error in % after 1 / 5 passes: {', '.join(lines)}."
        )
    advice = "A user should predict with the combined vector (adapt-then-combine) and average the "
    advice += "iterates weighted by n, as dokl does by default: no message more, and better."
    return [*out, advice] if out else []


def _beyond(results: Mapping[str, PartResult]) -> list[str]:
    """The best of each example beyond the paper, and the best rival, with their bytes."""
    lines = []
    for name, result in results.items():
        errors = [row for row in result.rows if row.unit == "dB"]
        if not name.startswith("beyond-example"):
            lines += _data(result) if name.startswith("beyond-") else []
            continue
        ours = min(errors[1:4], key=lambda row: row.ours)
        rival = min(errors[4:], key=lambda row: row.ours)
        sent = {row.what: f", {row.ours:.0f} kB a node" for row in result.rows if row.unit == "kB"}
        parts = [
            f"{row.what} {row.ours:.1f} dB{sent.get(row.what, '')}"
            for row in (errors[0], ours, rival)
        ]
        ahead = rival.ours - ours.ours
        verdict = "we are better" if ahead > 0 else "the rival is better"
        verdict = "as good" if abs(ahead) < 0.1 else verdict
        lines.append(
            f"Beyond the paper, {result.title}, {errors[0].group}: {'; '.join(parts)}: {verdict}."
        )
    return lines


def _data(result: PartResult) -> list[str]:
    """The best of a data set beyond the paper, beside its own scheme, with their bytes."""
    lines = []
    for group in dict.fromkeys(row.group for row in result.rows if row.unit == "%"):
        *ours, paper = (row for row in result.rows if row.group == group)
        sent = {r.what: r.ours for r in result.rows if r.group == f"{group}, sent by a node"}
        best = min(ours, key=lambda row: row.ours)
        parts = [f"{r.what} {r.ours:.1f} %, {sent[r.what]:.0f} kB a node" for r in (best, paper)]
        verdict = "we are better" if best.ours < paper.ours else "the paper's is better"
        verdict = "as good" if abs(best.ours - paper.ours) < 0.1 else verdict
        lines.append(f"Beyond the paper, {result.title} ({group}): {'; '.join(parts)}: {verdict}.")
    return lines


def _named(result: PartResult, group: str, start: str) -> tuple[str, str]:
    names = [r.what for r in result.rows if r.group == group and r.what.startswith(start)]
    return names[0], names[-1]


def disagreements(results: Mapping[str, PartResult]) -> str:
    """Every figure outside its bounds, with what we think is behind it."""
    lines = []
    for name, bad in texts.exceptions(results):
        apart = bad.apart()
        far = "" if apart is None else f", {apart:+.1f} combined standard errors"
        reason = texts.REASONS.get(name, "no explanation yet.")
        if bad.unit == "dB" and bad.error:
            few = bad.error * math.sqrt(bad.runs / 100)
            reason += f" (A mean of 100 runs would have a standard error of {few:.2f} dB.)"
        lines.append(
            f"- {name}, {bad.group}, {bad.what}: ours {bad.ours:.2f} {bad.unit}, prototype "
            f"{bad.prototype:.2f}{far}. What we think: {reason}"
        )
    return "\n".join(lines) or "Every figure agrees with the prototypes'."


def against(results: Mapping[str, PartResult]) -> str:
    """Claims of the paper that its own settings do not bear out."""
    points = [
        *_sizes(results),
        *_mnist(results),
        *_figure2(results),
        *_times(results),
        *_example3(results),
    ]
    return "\n".join(f"- {point}" for point in points)


def _sizes(results: Mapping[str, PartResult]) -> list[str]:
    out = []
    for data in ("banana", "waveform"):
        for command in ("table2", "table3"):
            result = results.get(f"{command}-{data}")
            if result is None:
                continue
            off = {}
            for group in ("N = 1300", "N = 4000"):
                rows = [r for r in result.rows if r.group == group and r.paper is not None]
                off[group] = [r.ours - r.paper for r in rows if r.paper is not None]
            far = {group: f"{min(each):+.1f} to {max(each):+.1f}" for group, each in off.items()}
            out.append(
                f"{result.title}: with the printed 4000 training points our errors differ from "
                f"the paper's by {far['N = 4000']} points, with 1300 by {far['N = 1300']}. We "
                "think that about 1300 were used."
            )
    return out


def _mnist(results: Mapping[str, PartResult]) -> list[str]:
    out = []
    for result in (r for name, r in results.items() if name.endswith("-mnist")):
        rows = [r for r in result.rows if r.judged and r.runs >= FEWEST]
        far = [r for r in rows if abs(r.from_paper() or 0) > STANDARD_ERRORS]
        off = [f"{r.what} {r.ours - r.paper:+.2f}" for r in far if r.paper is not None]
        if off:
            ours = all(r.agrees() for r in far)
            out.append(
                f"{result.title}: more than three of our standard errors from the paper's error "
                f"(in points): {', '.join(off)}. The prototype's figures "
                + ("agree with ours. " if ours else "do not all agree with ours. ")
                + "What the paper did otherwise is not known."
            )
    return out


def _figure2(results: Mapping[str, PartResult]) -> list[str]:
    if "fig2" not in results:
        return []
    result = results["fig2"]
    last = [r for r in result.rows if r.group == "steady state"][-1]
    levels = result.levels
    return [
        f"Figure 2: with {last.what} the steady state is {last.ours:.2f} dB and tends to 2 s² = "
        f"{levels[lines.RIGHT_LEVEL]:.2f} dB, not to the dashed line at 1.5 s² = "
        f"{levels[lines.PAPER_LEVEL]:.2f} dB: the theory behind that line drops the fourth-order "
        "term, which is not small at mu = 1."
    ]


def _times(results: Mapping[str, PartResult]) -> list[str]:
    if "table5" not in results:
        return []
    ratios = [r for r in results["table5"].rows if r.what.startswith("QKLMS time /")]
    lines = ", ".join(f"{r.group} {r.ours:.2f} (paper {r.paper:.2f})" for r in ratios)
    return [
        f"Table V, time of QKLMS over that of RFF-KLMS: {lines}. Both compiled and each in one "
        "thread; below 1 QKLMS is faster. At its dictionary sizes it has fewer terms to sum "
        "than RFF-KLMS has features. What random features buy is a model of fixed size that "
        "nodes can average, not speed on one node."
    ]


def _example3(results: Mapping[str, PartResult]) -> list[str]:
    if "fig1c" not in results:
        return []
    result = results["fig1c"]
    both = [value(result, "steady state", who) for who in ("together", "alone")]
    return [
        f"Figure 1(c), Example 3: together {both[0]:.2f} dB, alone {both[1]:.2f} dB. The paper "
        "says that cooperation is better. Under the reading that its dictionary sizes force it is "
        "worse, since every node follows a hidden state of its own."
    ]
