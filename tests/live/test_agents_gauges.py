"""An agent's status as Prometheus reads it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dokl.live.description import AgreedInputs, ExchangePolicy, Model
from dokl.live.http import gauges
from dokl.live.process import Latency, process_facts
from dokl.live.sources.messages import new_facts
from dokl.live.transports.memory import Hub
from live_networks import small
from memory_agents import WAIT, arrival, starting, wait

NEIGHBOUR = {
    "up": True, "age_s": 0.25, "received": 40, "refused": 3, "bytes_in": 5000, "bytes_out": 6000,
    "weight": 0.5, "distance": 0.1, "step": 9, "learned": 900, "other_version": False,
}  # fmt: skip
SILENT = dict.fromkeys(NEIGHBOUR) | {"up": False, "received": 0}
STATUS = {
    "dokl": "0.1.0", "network": 'la"b', "name": "a", "fingerprint": "f00d", "incarnation": 5,
    "pid": 1, "started": 1000.0, "now": 1060.0, "uptime_s": 60.0, "samples": 2000, "learned": 1990,
    "step": 55, "error": {"kind": "mse", "recent": 0.125, "curve": [[50, 1.0]]},
    "theta_norm": 3.0, "disagreement": 0.01,
    "exchange": {"mode": "push", "every_seconds": 0.1, "every_samples": 0, "combines": 70},
    "neighbours": {"b": NEIGHBOUR, "c": SILENT}, "bytes_in": 5000, "bytes_out": 6000,
    "refused": {"size": 2, "fingerprint": 1},
    "requests": {"accepted": 40, "refused": 1, "busy": 2, "repeated": 3},
    "queue": {"rows": 10, "limit": 20000}, "waiting_labels": 4, "unknown_labels": 5,
    "journal": {"bytes": 4096, "rows_since_snapshot": 300, "failures": 6}, "durability": "process",
    "source": {"name": "a.csv", "rows": 1500, "bad_lines": 8, "finished": False},
    "certificate_expires": 4660.0, "assumptions": ["c is silent"], "problems": [], "clock_jumps": 9,
}  # fmt: skip


def read(status, answers=None):
    """{name: {labels: value}} and the families, as Prometheus' own parser sees the text."""
    families = list(text_string_to_metric_families(gauges.text(status, answers).decode("utf-8")))
    values = {}
    for family in families:
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in values.setdefault(sample.name, {})
            values[sample.name][labels] = sample.value
    return values, families


def test_everything_is_there():
    values, _ = read(STATUS)
    single = {name: found[()] for name, found in values.items() if () in found}
    assert single == {
        "dokl_uptime_seconds": 60, "dokl_samples_total": 2000, "dokl_learned_total": 1990,
        "dokl_step": 55, "dokl_recent_error": 0.125, "dokl_theta_norm": 3,
        "dokl_disagreement": 0.01, "dokl_combines_total": 70, "dokl_queue_rows": 10,
        "dokl_queue_limit_rows": 20000, "dokl_waiting_labels": 4, "dokl_unknown_labels_total": 5,
        "dokl_journal_bytes": 4096, "dokl_journal_rows": 300, "dokl_journal_failures_total": 6,
        "dokl_source_rows_total": 1500, "dokl_bad_lines_total": 8, "dokl_source_finished": 0,
        "dokl_clock_jumps_total": 9, "dokl_certificate_expires_seconds": 3600,
        "dokl_assumptions": 1, "dokl_problems": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("dokl_neighbour_up", "neighbour", {"b": 1, "c": 0}),
        ("dokl_neighbour_age_seconds", "neighbour", {"b": 0.25}),
        ("dokl_messages_received_total", "neighbour", {"b": 40, "c": 0}),
        ("dokl_bytes_sent_total", "neighbour", {"b": 6000}),
        ("dokl_bytes_received_total", "neighbour", {"b": 5000}),
        ("dokl_messages_refused_total", "reason", {"size": 2, "fingerprint": 1}),
        (
            "dokl_requests_total", "outcome",
            {"accepted": 40, "refused": 1, "busy": 2, "repeated": 3},
        ),
        ("dokl_http_answers_total", "code", {"200": 12, "429": 1}),
    ],
)  # fmt: skip
def test_labels(name, label, expected):
    values, _ = read(STATUS, {200: 12, 429: 1})
    assert values[name] == {((label, key),): value for key, value in expected.items()}


def test_who_it_is():
    values, _ = read(STATUS)
    ((labels, value),) = values["dokl_up"].items()
    assert value == 1
    assert dict(labels) == {
        "version": "0.1.0", "network": 'la"b', "name": "a", "fingerprint": "f00d",
        "durability": "process",
    }  # fmt: skip


def test_kinds_and_words():
    text = gauges.text(STATUS, {200: 1}).decode()
    _, families = read(STATUS, {200: 1})
    for family in families:
        assert family.documentation.endswith("."), family.name
        name = family.samples[0].name
        assert family.type == ("counter" if name.endswith("_total") else "gauge"), name
        assert f"# HELP {name} " in text
        assert f"# TYPE {name} {family.type}\n" in text


def test_what_is_not_known_is_left_out():
    unknown = STATUS | {
        "error": {"kind": "mse", "recent": None}, "disagreement": None, "source": None,
        "certificate_expires": None, "neighbours": {}, "refused": {},
    }  # fmt: skip
    values, _ = read(unknown)
    gone = read(STATUS)[0].keys() - values.keys()
    assert gone == {
        "dokl_recent_error", "dokl_disagreement", "dokl_source_rows_total", "dokl_bad_lines_total",
        "dokl_source_finished", "dokl_certificate_expires_seconds", "dokl_messages_refused_total",
        *gauges.NEIGHBOUR,
    }  # fmt: skip
    assert "nan" not in gauges.text(unknown).decode().lower()


def test_an_empty_status_is_no_error():
    values, _ = read({})
    assert set(values) == {"dokl_up", "dokl_assumptions", "dokl_problems"}


DASHBOARD = Path(__file__).parents[2] / "examples" / "deploy" / "grafana-dashboard.json"


def full():
    """Everything that an agent can tell."""
    took = Latency()
    took.add(0.004)
    more = {
        "process": process_facts(), "waiting_expired": 1,
        "out_of_range": {"rule": "refuse", "columns": {"wind": 2}},
        "journal": {**STATUS["journal"], "lost_rows": 3},
        "source": {**STATUS["source"], **new_facts("broker", "mqtt")},
        "sharing": {"ratio": 0.9, "covered": 0.91, "rows": 80},
    }  # fmt: skip
    return gauges.text({**STATUS, **more}, {200: 1}, {"/samples": took}).decode()


def test_how_long_requests_took_and_what_the_process_takes():
    values = {}
    for family in text_string_to_metric_families(full()):
        for sample in family.samples:
            values[sample.name, *sorted(sample.labels.values())] = sample.value
    assert values["dokl_http_seconds_bucket", "/samples", "0.0025"] == 0
    assert values["dokl_http_seconds_bucket", "/samples", "0.005"] == 1
    assert values["dokl_http_seconds_bucket", "+Inf", "/samples"] == 1
    assert values["dokl_http_seconds_count", "/samples"] == 1
    assert values["process_resident_memory_bytes",] > 1e6
    assert values["process_cpu_seconds_total",] > 0
    assert 0 < values["process_open_fds",] <= values["process_max_fds",]
    assert values["dokl_out_of_range_total", "wind"] == 2
    assert (values["dokl_waiting_expired_total",], values["dokl_journal_lost_rows_total",]) == (
        1,
        3,
    )


def questions():
    """Of each panel for Grafana, by title: the names of metrics that it asks for."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len(panels) == len({panel["id"] for panel in panels}) > 12
    assert len(panels) == len({panel["title"] for panel in panels})
    return {
        panel["title"]: {name for each in panel["targets"] for name in asked_for(each["expr"])}
        for panel in panels
    }


def asked_for(expression):
    return set(re.findall(r"\b(?:dokl|process)_\w+", expression)) or {"up"}


def names_in(text):
    return {"up", *re.findall(r"^(\w+)[ {]", text, re.M)}  # Prometheus itself says who is up


def test_the_dashboard_for_grafana_asks_for_what_there_is():
    told = names_in(full())
    assert {title: names - told for title, names in questions().items() if names - told} == {}


BROKERS = {
    "Brokers there", "Messages of brokers per second", "Brokers: dead letters and repeats",
    "Brokers found again", "Predictions published",
}  # fmt: skip
ABSENT = {
    "gradient": {"Error with the others over alone", "Within 90 % intervals", "Rows known"},
    "squares": set(),
}


@pytest.mark.parametrize("method", ["gradient", "squares"])
def test_panels_without_data_say_why(method, tmp_path):
    inputs = replace(AgreedInputs.plain(3), ranges=((-9.0, 9.0),) * 3)
    policy = ExchangePolicy(every_seconds=0.02, fewest_rows=5)
    network = small(
        links=(("a", "b"),), model=Model(D=20, method=method), inputs=inputs, exchange=policy
    )
    hub, took = Hub(), Latency()
    took.add(0.004)
    with starting(tmp_path) as start:
        agents = [start(network, name, hub=hub) for name in "ab"]
        for agent in agents:
            wait(lambda agent=agent: all(n["up"] for n in agent.status()["neighbours"].values()))
            agent.submit(arrival(60, 1)).result(WAIT)
        wait(lambda: all(n["age_s"] is not None for n in agents[0].status()["neighbours"].values()))
        wait(lambda: agents[0].status()["disagreement"] is not None)
        told = names_in(gauges.text(agents[0].status(), {200: 1}, {"/samples": took}).decode())
    absent = {title for title, names in questions().items() if not names <= told}
    assert absent == {"Certificates run out in"} | BROKERS | ABSENT[method]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert absent <= {panel["title"] for panel in panels if panel.get("description")}
