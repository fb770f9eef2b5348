"""An agent's status as text for Prometheus. What is not known (null) is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dokl.base.errors import MissingExtra
from dokl.live.process import Latency

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError:
    raise MissingExtra("a live network", "live") from None

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# name: (key in the status, help); a key with a dot looks inside. Names that end in _total count.
PLAIN = {
    "dokl_uptime_seconds": ("uptime_s", "Seconds since this agent started."),
    "dokl_status_age_seconds": (
        "age_s",
        "Age of these figures: above 0 while a long computation goes on.",
    ),
    "dokl_ready": ("ready", "1 while /readyz is 200."),
    "dokl_samples_total": ("samples", "Samples acknowledged, in all runs of this store."),
    "dokl_learned_total": ("learned", "Samples learned, in all runs of this store."),
    "dokl_step": ("step", "Version of the vector theta; in lockstep, the round."),
    "dokl_recent_error": (
        "error.recent",
        "Error on recent samples, each predicted before it was learned: squared error, or share "
        "of mistakes.",
    ),
    "dokl_theta_norm": ("theta_norm", "Length of the vector theta."),
    "dokl_disagreement": (
        "disagreement",
        "Mean over live neighbours of |theta_l - theta|^2 / |theta|^2, at the last combine; of "
        "sums: of the share of rows that its account and this one's do not have in common.",
    ),
    "dokl_combines_total": ("exchange.combines", "Times that neighbours' vectors were combined."),
    "dokl_queue_rows": ("queue.rows", "Rows that wait to be learned."),
    "dokl_queue_limit_rows": ("queue.limit", "Rows that may wait before senders get 429."),
    "dokl_queue_seconds": ("queue.seconds", "Seconds that learning them will take."),
    "dokl_queue_limit_seconds": ("queue.limit_seconds", "Seconds that may wait before 429."),
    "dokl_waiting_labels": ("waiting_labels", "Inputs that wait for their labels."),
    "dokl_waiting_expired_total": (
        "waiting_expired",
        "Inputs that waited too long for a label, or were too many, or were purged.",
    ),
    "dokl_unknown_labels_total": ("unknown_labels", "Labels whose id no input waited under."),
    "dokl_journal_bytes": ("journal.bytes", "Bytes of the journal on disk."),
    "dokl_journal_rows": ("journal.rows_since_snapshot", "Rows journaled since the snapshot."),
    "dokl_journal_failures_total": (
        "journal.failures",
        "Times that the journal could not be written; nothing was acknowledged then.",
    ),
    "dokl_journal_lost_rows_total": (
        "journal.lost_rows",
        "Acknowledged rows that the journal has lost, by power cuts or damage.",
    ),
    "dokl_sharing_ratio": ("sharing.ratio", "Recent error over that of the own experts alone."),
    "dokl_known_rows": (
        "sharing.rows",
        "Rows known: own ones, and those others have reported.",
    ),
    "dokl_rows_behind": ("sharing.behind", "Rows of others that came and are not learned yet."),
    "dokl_rows_skipped_total": ("sharing.skipped_rows", "Rows that went before they were learned."),
    "dokl_rows_failed_total": ("sharing.failed_rows", "Rows that could not be learned."),
    "dokl_forks_total": ("sharing.forked", "Times that an origin sealed one number twice."),
    "dokl_covered": ("sharing.covered", "Share of recent rows within their 90 % intervals."),
    "dokl_source_rows_total": ("source.rows", "Rows read from the agent's own source."),
    "dokl_bad_lines_total": ("source.bad_lines", "Lines of the own source that were skipped."),
    "dokl_source_finished": ("source.finished", "1 when the own source is at its end."),
    "dokl_source_connected": ("source.connected", "1 while the own broker is there."),
    "dokl_source_connects_total": ("source.connects", "Times that the own broker was found."),
    "dokl_source_messages_total": ("source.messages", "Messages of the own broker, settled."),
    "dokl_source_repeated_total": ("source.repeated", "Of these, known and not learned again."),
    "dokl_dead_letters_total": ("source.dead_letters", "Of these, put aside as dead letters."),
    "dokl_predictions_published_total": ("source.published", "Predictions sent to the broker."),
    "dokl_predictions_unpublished_total": ("source.unpublished", "Those that did not get there."),
    "process_cpu_seconds_total": ("process.cpu_s", "Processor time used, in seconds."),
    "process_resident_memory_bytes": ("process.memory_bytes", "Memory in use."),
    "process_open_fds": ("process.open_files", "Open files and connections."),
    "process_max_fds": ("process.open_files_limit", "How many may be open."),
    "dokl_clock_jumps_total": ("clock_jumps", "Times that wall time jumped."),
}

# The same, one value for each neighbour.
NEIGHBOUR = {
    "dokl_neighbour_up": ("up", "1 while the neighbour is there."),
    "dokl_neighbour_age_seconds": ("age_s", "Seconds since its last vector was accepted."),
    "dokl_neighbour_weight": ("weight", "Its weight in the combination now."),
    "dokl_neighbour_distance": ("distance", "|theta_l - theta| at the last combine."),
    "dokl_neighbour_version_skew": (
        "other_version",
        "1 if it reports another version of dokl than this agent, 0 if the same.",
    ),
    "dokl_neighbour_learned": ("learned", "Samples that it reports to have learned."),
    "dokl_messages_received_total": ("received", "Vectors accepted from it."),
    "dokl_neighbour_refused_total": ("refused", "Messages of it that were refused."),
    "dokl_bytes_sent_total": ("bytes_out", "Bytes sent to it."),
    "dokl_bytes_received_total": ("bytes_in", "Bytes received from it."),
}


def text(
    status: Mapping[str, Any],
    answers: Mapping[int, int] | None = None,
    latencies: Mapping[str, Latency] | None = None,
) -> bytes:
    """Prometheus text of `Agent.status()`; answers: how many the HTTP interface gave, by code.

    latencies: how long it took for them, by path.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(status, answers or {}, latencies or {}))
    return generate_latest(registry)


class _Collector(Collector):
    """One status, looked at once."""

    def __init__(
        self,
        status: Mapping[str, Any],
        answers: Mapping[int, int],
        latencies: Mapping[str, Latency],
    ) -> None:
        self._status, self._answers, self._latencies = status, answers, latencies

    def describe(self) -> Iterable[Metric]:
        """Nothing is known beforehand."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family that has a value."""
        yield self._about()
        for name, (key, words) in PLAIN.items():
            yield from _single(name, words, _inside(self._status, key))
        yield from self._neighbours()
        yield from self._counted()
        yield from self._states()
        yield from self._took()

    def _took(self) -> Iterator[Metric]:
        if not self._latencies:
            return
        words = "Seconds from a request to its answer, which for samples is after the journal."
        family = HistogramMetricFamily("dokl_http_seconds", words, labels=["path"])
        for path, each in self._latencies.items():
            buckets = [*each.counts.items(), ("+Inf", each.n)]
            family.add_metric([path], buckets, each.total)
        yield family

    def _about(self) -> Metric:
        about = {"version": "dokl", "network": "network", "name": "name"}
        about |= {"fingerprint": "fingerprint", "durability": "durability"}
        family = GaugeMetricFamily("dokl_up", "1, and who this agent is.", labels=[*about])
        family.add_metric([str(self._status.get(key, "")) for key in about.values()], 1.0)
        return family

    def _neighbours(self) -> Iterator[Metric]:
        known = self._status.get("neighbours") or {}
        for name, (key, words) in NEIGHBOUR.items():
            values = {peer: facts.get(key) for peer, facts in known.items()}
            yield from _labelled(name, words, "neighbour", values)

    def _counted(self) -> Iterator[Metric]:
        refused = "Messages of neighbours that were refused."
        outcomes = "Batches of samples, by what became of them."
        codes = "Answers of the HTTP interface, by status code."
        outside = "Numbers outside the range of their column, refused or clipped."
        for name, words, label, values in (
            ("dokl_messages_refused_total", refused, "reason", self._status.get("refused")),
            ("dokl_requests_total", outcomes, "outcome", self._status.get("requests")),
            ("dokl_http_answers_total", codes, "code", self._answers),
            (
                "dokl_out_of_range_total",
                outside,
                "column",
                _inside(self._status, "out_of_range.columns"),
            ),
        ):
            counts = {str(key): n for key, n in dict(values or {}).items()}
            yield from _labelled(name, words, label, counts)

    def _states(self) -> Iterator[Metric]:
        for key, words in (
            ("assumptions", "Assumptions of the theory that do not hold now."),
            ("problems", "Problems now; /status lists them."),
        ):
            yield from _single(f"dokl_{key}", words, len(self._status.get(key) or ()))
        expires, now = self._status.get("certificate_expires"), self._status.get("now")
        if expires is not None and now is not None:
            words = "Seconds until the node's certificate runs out."
            yield from _single("dokl_certificate_expires_seconds", words, expires - now)


def _single(name: str, words: str, value: float | None) -> Iterator[Metric]:
    if value is not None:
        yield _kind(name)(name, words, value=float(value))


def _labelled(
    name: str, words: str, label: str, values: Mapping[str, float | None]
) -> Iterator[Metric]:
    there = {key: float(value) for key, value in values.items() if value is not None}
    if there:
        family = _kind(name)(name, words, labels=[label])
        for key, value in there.items():
            family.add_metric([key], value)
        yield family


def _kind(name: str) -> type[CounterMetricFamily] | type[GaugeMetricFamily]:
    return CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily


def _inside(status: Mapping[str, Any], key: str) -> Any:
    found: Any = status
    for part in key.split("."):
        found = None if found is None else found.get(part)
    return found
