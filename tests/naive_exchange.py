"""One exchange as plain loops over nodes, neighbours and numbers: the slow truth of its rules.

It shares no code with the package; rules are read off the records only.
"""

from __future__ import annotations

import math
import statistics

import numpy as np

SPACING = {1: 1.5958, 2: 0.9957, 3: 0.5860, 4: 0.3352}


def coded(change, bits):
    """Differences {i: number} as they arrive."""
    size = math.sqrt(sum(v * v for v in change.values()) / len(change))
    if size == 0:
        return dict.fromkeys(change, 0.0)
    levels = {}
    for i, v in change.items():
        level = math.floor(v / (SPACING[bits] * size)) + 0.5
        half = 2**bits / 2 - 0.5
        levels[i] = min(max(level, -half), half)
    scale = sum(change[i] * levels[i] for i in change) / sum(v * v for v in levels.values())
    return {i: float(np.float32(scale)) * v for i, v in levels.items()}


def rounded(numbers, dtype):
    """Numbers {i: number} as they arrive."""
    kind = np.float64 if dtype is None else np.dtype(dtype).type
    return {i: float(kind(v)) for i, v in numbers.items()}


def stood(weights):
    """The most faulty nodes among neighbours of these weights."""
    b = 0
    while 3 * (b + 1) <= len(weights) and sum(sorted(weights)[-(b + 1) :]) < 1 / 3:
        b += 1
    return b


def length(numbers):
    """Euclidean, of {i: number}."""
    return math.sqrt(sum(v * v for v in numbers.values()))


def to_mean(own, apart, left):
    """Distances from the weighted mean, one's own first; apart: [(weight, {i: difference})]."""
    total = left + sum(a for a, _ in apart)
    mean = {i: sum(a * d[i] for a, d in apart) / total for i in own}
    zero = dict.fromkeys(own, 0.0)
    return [length({i: d[i] - mean[i] for i in own}) for d in (zero, *(d for _, d in apart))]


def to_others(own, apart):
    """The median distance of each to all others, one's own first."""
    every = [dict.fromkeys(own, 0.0), *(d for _, d in apart)]
    return [
        statistics.median(length({i: d[i] - e[i] for i in own}) for e in every if e is not d)
        for d in every
    ]


def mixed(own, heard, mixing):
    """own: {i: number}; heard: [(weight, {i: number})]."""
    apart = [(a, {i: v[i] - own[i] for i in own}) for a, v in heard]
    b = stood([a for a, _ in heard]) if mixing.faulty is None else mixing.faulty
    left = 1 - sum(a for a, _ in heard)
    if mixing.rule == "ios":
        for _ in range(min(b, len(heard))):
            off = to_others(own, apart) if mixing.far else to_mean(own, apart, left)
            if mixing.far and max(off[1:]) <= mixing.far * statistics.median(off):
                break
            apart.pop(off[1:].index(max(off[1:])))
    short = []
    for a, d in apart:
        norm = math.sqrt(sum(v * v for v in d.values()))
        cut = mixing.clip / norm if mixing.clip and norm > mixing.clip else 1.0
        short.append((a, {i: cut * v for i, v in d.items()}))
    out = {}
    for i in own:
        pairs = [(d[i], a) for a, d in short]
        if mixing.rule == "trimmed":
            pairs = sorted(pairs, key=lambda pair: pair[0])[b : len(pairs) - b]
        total = left + sum(a for _, a in pairs)
        out[i] = own[i] + (sum(a * v for v, a in pairs) / total if pairs else 0.0)
    return out


def attacked(attack, own, told, target, honest, weight):
    """What a faulty node says, {i: number}; honest: [(weight, {i: number})]."""
    if attack.name == "sign_flip":
        return {i: -attack.p * v for i, v in own.items()}
    if attack.name == "inflated":
        return {i: attack.p * v for i, v in own.items()}
    if attack.name == "stale":
        return told
    if attack.name == "isolation":
        pull = {i: sum(a * (v[i] - target[i]) for a, v in honest) for i in own}
        return {i: target[i] - pull[i] / weight for i in own}
    assert attack.name == "little"
    said = {}
    for i in own:
        each = [v[i] for _, v in honest]
        mean = sum(each) / len(each)
        std = math.sqrt(sum((v - mean) ** 2 for v in each) / len(each))
        said[i] = mean - attack.p * std
    return said


def exchange(A, payload, told, sending, mixing, turn, attack=None, faulty=()):
    """(mixed, told, bytes) as `rules.exchange_once`."""
    K, size = payload.shape
    A, out, now, sent = A.toarray(), payload.copy(), told.copy(), 0
    chosen = [i for i in range(size) if i % sending.parts == turn % sending.parts]
    has = [{i: payload[k, i] for i in chosen} for k in range(K)]
    knew = [{i: told[k, i] for i in chosen} for k in range(K)]
    attacking = [attack is not None and k in faulty and turn >= attack.since for k in range(K)]
    whole = sending.bits == 0 or (sending.refresh and turn // sending.parts % sending.refresh == 0)
    speaks, said = [], []
    for k in range(K):
        change = sum((has[k][i] - knew[k][i]) ** 2 for i in chosen)
        length = sum(has[k][i] ** 2 for i in chosen)
        speaks.append(sending.least == 0 or change > sending.least**2 * length or attacking[k])
        heard = dict(has[k])
        heard = rounded(heard, sending.dtype)
        if not whole:
            code = coded({i: has[k][i] - knew[k][i] for i in chosen}, sending.bits)
            heard = {i: knew[k][i] + code[i] for i in chosen}
        if sending.bits and (not speaks[k] or attacking[k]):
            heard = knew[k]
        said.append(heard)
        if speaks[k] and not attacking[k]:
            for i in chosen:
                now[k, i] = heard[i] if sending.bits else payload[k, i]
    for k in range(K):
        near = [j for j in range(K) if j != k and A[k, j] != 0 and (speaks[j] or sending.bits)]
        own = said[k] if sending.bits and not attacking[k] else has[k]
        honest = [(A[k, j], said[j]) for j in near if not attacking[j]]
        weight = sum(A[k, j] for j in near if attacking[j])
        heard = [
            (
                A[k, j],
                rounded(attacked(attack, has[j], knew[j], own, honest, weight), sending.dtype),
            )
            if attacking[j] and not attacking[k]
            else (A[k, j], said[j])
            for j in near
        ]
        for i, v in mixed(own, heard, mixing).items():
            out[k, i] = payload[k, i] + v - own[i]
        if speaks[k]:
            links = sum(1 for j in range(K) if j != k and A[j, k] != 0)
            each = {None: 8, "float32": 4, "float16": 2}[sending.dtype] * len(chosen)
            sent += links * (each if whole else 4 + math.ceil(len(chosen) * sending.bits / 8))
    return out, now, sent
