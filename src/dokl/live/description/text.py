"""A description as text: TOML with comments on its keys."""

from __future__ import annotations

import json
from collections.abc import Mapping

from dokl.live.description.agreed import AgreedInputs
from dokl.live.description.network import Network
from dokl.live.description.sections import Model, Node
from dokl.live.description.sources import SensorSource

_HEAD = """\
# The live network {name}: every node reads this same file.
#   dokl network check {file}      what is wrong with it, if anything
#   dokl up {file} --data DIR      all nodes on this machine, for trying out
#   dokl agent {file} --name NODE  one node
"""
_INPUTS = "[inputs]                 # agreed once; nodes that scale otherwise cannot average"


def text(network: Network) -> str:
    """The whole file; reading it gives an equal network."""
    parts = [
        _HEAD.format(name=network.about.name, file=network.path.name),
        _network(network),
        _model(network.model),
        inputs_text(network),
        _exchange(network),
        _rest(network),
        *(_node(name, node) for name, node in network.nodes.items()),
        *(_source(name, source) for name, source in network.sources.items()),
    ]
    if network.routes:
        parts.append("[routes]                 # who dials whom elsewhere: a NAT, a proxy\n")
        parts[-1] += "".join(f"{_say(way)} = {_say(to)}\n" for way, to in network.routes.items())
    return "\n".join(parts)


def _network(network: Network) -> str:
    about = network.about
    kept = f"certificates = {_say(about.certificates)}\n" if about.certificates else ""
    links = "".join(f"  [{_say(a)}, {_say(b)}],\n" for a, b in about.links)
    begun = _line("begun", about.begun, "there are no earlier rows") if about.begun else ""
    return (
        "[network]\n"
        f"name = {_say(about.name)}\n"
        f"{_line('security', about.security, 'mtls, or insecure-loopback for play')}"
        f"{kept}"
        f"{begun}"
        f"{_line('revoked', list(about.revoked), 'names that are shut out')}"
        f"links = [\n{links}]\n"
    )


def _model(model: Model) -> str:
    optional = ("loss_parameter", "mu", "n0", "power", "eps")
    given = {key: getattr(model, key) for key in optional}
    more = "".join(f"{key} = {_say(v)}\n" for key, v in given.items() if v is not None)
    extra = f"parameters = {_table(model.parameters)}\n" if model.parameters else ""
    if model.rows:
        return (
            "[model]                  # every node learns its own from the rows it receives\n"
            f"{_line('seed', model.seed)}"
            f"{_method(model)}"
        )
    if model.map is not None:
        return (
            "[model]                  # the same on all nodes\n"
            f"{_line('map', model.map, 'what sums are on; every host needs it')}"
            f"{_line('D', model.D, 'numbers in a feature vector')}"
            f"{_line('seed', model.seed)}"
            f"{_method(model)}"
        )
    return (
        "[model]                  # kernel to seed must be the same on all nodes\n"
        f"{_line('kernel', model.kernel)}"
        f"{_sigma(model.sigma)}"
        f"{_line('D', model.D, 'numbers in theta, and in a message')}"
        f"{_line('variant', model.variant)}"
        f"{_line('seed', model.seed)}"
        f"{extra}"
        f"{_line('loss', model.loss)}"
        f"{_line('schedule', model.schedule)}"
        f"{more}"
        f"{_line('lam', float(model.lam), 'L2 regularization')}"
        f"{_method(model)}"
        f"{_line('intercept', float(model.intercept), 'private constant feature; 0: none')}"
    )


def _method(model: Model) -> str:
    if not model.squares:
        return ""
    why = "gradient, or squares: own learners that share"
    lines = _line("method", model.method, why)
    what = "sums of rows; or rows: all rows of a node leave it"
    lines += _line("share", model.share, what) if model.rows else ""
    if model.own_components != Model.own_components:
        lines += _line("own_components", model.own_components, "centres of a node's own learner")
    drawn = model.map is None and not model.rows
    return lines + (_line("ridge", float(model.ridge)) if drawn else "")


def _sigma(sigma: float | tuple[float, ...]) -> str:
    if isinstance(sigma, tuple):
        return _line("sigma", list(map(float, sigma)), "widths: numeric, then levels")
    return _line("sigma", float(sigma), "the width of the kernel")


def inputs_text(network: Network) -> str:
    """The sections of the columns alone: [inputs], and [[earlier]] ones."""
    sections = [_inputs(network.inputs, network.fingerprint), *map(_earlier, network.former)]
    return "\n".join(sections)


def _earlier(network: Network) -> str:
    why = "earlier columns, whose kept rows become rows of [inputs]"
    return _inputs(network.inputs, network.fingerprint, f"[[earlier]]              # {why}")


def _inputs(given: AgreedInputs, fingerprint: str, head: str = _INPUTS) -> str:
    labels = f"labels = {_say(list(given.labels))}\n" if given.labels else ""
    believed = "targets outside are refused: a sensor's error codes"
    bounds = list(given.target_range)
    bounded = _line("target_range", bounds, believed) if bounds else ""
    if given.ranges:
        bounded += f"ranges = {_say(_lists(given.ranges))}  # of numeric, in order\n"
    if bounded:
        bounded += _line("outside", given.outside, "refuse, or clip: numbers beyond a range")
    drop = _line("drop", list(given.drop), "may be there, is not used") if given.drop else ""
    sums = {key: list(getattr(given, key)) for key in ("shift", "count", "total", "square")}
    return (
        f"{head}\n"
        f"{_line('target', given.target)}"
        f"{_line('task', given.task)}"
        f"{labels}"
        f"numeric = {_say(list(given.numeric))}\n"
        f"{bounded}"
        f"levels = {_say([[name, list(levels)] for name, levels in given.levels])}\n"
        f"{_cells(given)}"
        f"{drop}"
        f"{_line('standardise', given.standardise, 'fixed (by the sums below), or off')}"
        f"{''.join(_line(key, numbers) for key, numbers in sums.items())}"
        f"{_line('fingerprint', fingerprint, 'of features, scaling and labels')}"
    )


def _cells(given: AgreedInputs) -> str:
    """Times, forms and spellings, where there are any."""
    lines = ""
    if given.times:
        entries = [[name, list(parts), float(start)] for name, parts, start in given.times]
        lines += f"times = {_say(entries)}  # what counts of it; start: seconds since 1970\n"
    if given.forms:
        entries = [list(entry) for entry in given.forms]
        lines += f"forms = {_say(entries)}  # how cells are written\n"
    if given.lags:
        entries = [[str(part) for part in entry] for entry in given.lags]
        lines += f"lags = {_say(entries)}  # made by each node of its own rows\n"
    if given.ahead:
        lines += _line("horizon", given.horizon, "how much later the target of a row lies")
    if given.ordered_by:
        lines += _line("ordered_by", given.ordered_by, "the times that rows follow")
    return lines + (f"missing = {_say(list(given.missing))}\n" if given.missing else "")


def _lists(ranges: tuple[tuple[float, float], ...]) -> list[list[float]]:
    return [[float(low), float(high)] for low, high in ranges]


def _exchange(network: Network) -> str:
    policy = network.exchange
    clip = policy.clip if isinstance(policy.clip, str) else float(policy.clip)
    return (
        "[exchange]\n"
        f"{_line('mode', policy.mode, 'push, pull (slow links), lockstep, off')}"
        f"{_line('every_seconds', float(policy.every_seconds), '0: not by time')}"
        f"{_line('every_samples', policy.every_samples, '0: not by count')}"
        f"{_line('dtype', policy.dtype, 'float32, or float16 for half the bytes')}"
        f"{_line('mixing', policy.mixing, 'ios: without the farthest neighbours; mean')}"
        f"{_of_sums(network)}"
        f"{_line('clip', clip, 'how far one neighbour may pull; 0: any; auto: by own rows')}"
        f"{_line('order', policy.order, 'lockstep: cta, or atc')}"
        f"{_line('patience_seconds', float(policy.patience_seconds), 'lockstep: wait so long')}"
        f"{_line('join_seconds', float(policy.join_seconds), 'a newcomer looks for neighbours')}"
    )


def _of_sums(network: Network) -> str:
    policy, most = network.exchange, float(network.exchange.rows_per_second)
    if not network.model.squares:
        return ""
    if network.model.rows:
        return (
            f"{_line('kept_rows', policy.kept_rows, 'of each origin, at every node')}"
            f"{_line('seal_seconds', float(policy.seal_seconds), 'own rows leave after so long')}"
            f"{_line('rows_per_second', most, 'of one origin, at most')}"
        )
    return (
        f"{_line('fewest_rows', policy.fewest_rows, 'own rows that a message adds at least')}"
        f"{_line('rows_per_second', most, 'of one origin, at most')}"
        f"{_line('bytes_per_second', float(policy.bytes_per_second), 'to a neighbour; 0: any')}"
    )


def _rest(network: Network) -> str:
    durability, limits = network.durability, network.limits
    return (
        "[durability]\n"
        f"{_line('mode', durability.mode, 'process: kill -9; full: a power cut, too')}"
        f"{_line('snapshot_rows', durability.snapshot_rows, 'theta is written after this many')}"
        f"{_line('keep_minutes', float(durability.keep_minutes), 'between those to go back to')}"
        "\n[limits]                 # more is answered with: come back later\n"
        f"{_line('body_bytes', limits.body_bytes)}"
        f"{_line('queue_rows', limits.queue_rows)}"
        f"{_line('queue_seconds', float(limits.queue_seconds), 'of learning that may wait')}"
        f"{_line('waiting_labels', limits.waiting_labels)}"
        f"{_line('waiting_hours', float(limits.waiting_hours), 'inputs without label go then')}"
        f"{_line('keys', limits.keys)}"
    )


def _node(name: str, node: Node) -> str:
    lines = f"[nodes.{name}]\n{_line('address', node.address)}"
    for key in ("listen", "http"):
        if getattr(node, key) is not None:
            lines += _line(key, getattr(node, key))
    if node.at:
        lines += _line("at", [float(each) for each in node.at], "longitude, latitude: for the page")
    return lines


def _source(name: str, source: SensorSource) -> str:
    lines = f"[sources.{name}]\n{_line('kind', source.kind, 'secrets: in the environment')}"
    lines += _line("brokers", list(source.brokers)) + _line("topics", list(source.topics))
    if source.predictions is not None:
        lines += _line("predictions", source.predictions, "what it predicts is published there")
    if source.client is not None:
        lines += _line("client", source.client, "the broker knows it by this name")
    if source.kind != "mqtt":
        return lines
    return lines + _line("repeats", source.repeats, "equal messages: skip, or learn again")


def _line(key: str, value: object, why: str = "") -> str:
    line = f"{key} = {_say(value)}"
    return f"{line:<24} # {why}\n" if why else f"{line}\n"


def _say(value: object) -> str:
    """A value in TOML; floats keep every bit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_say, value))}]"
    return repr(value)


def _table(values: Mapping[str, object]) -> str:
    return f"{{ {', '.join(f'{_say(key)} = {_say(v)}' for key, v in values.items())} }}"
