"""The dashboard and the alerts: a real Prometheus answers every question that they ask."""

import json
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
from lab import Lab, free_ports, ring, samples, wait_for
from mosquitto import Mosquitto
from servers import found
from test_mqtt import SECRETS, publish, readings

from dokl.live.description import ExchangePolicy, Model, SensorSource

ALERTS = Path(__file__).parents[2] / "examples" / "deploy" / "alerts.yml"
DASHBOARD = Path(__file__).parents[2] / "examples" / "deploy" / "grafana-dashboard.json"
QUIET = {"Certificates run out in"}  # with mtls


@contextmanager
def prometheus(folder, targets, rules=()):
    [port] = free_ports(1)
    scrape = {"job_name": "dokl", "static_configs": [{"targets": targets}]}
    pace = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings = {"global": pace, "scrape_configs": [scrape], "rule_files": list(rules)}
    (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
    command = [
        found("prometheus"), f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}/api/v1/query"
    finally:
        process.kill()
        process.wait(10)


def answer(url, question):
    try:
        said = httpx.get(url, params={"query": question}, trust_env=False)
    except httpx.TransportError:
        return None
    assert said.status_code in (200, 503), said.text
    return said.json()["data"]["result"] if said.status_code == 200 else None


def test_the_rules_for_alerts_are_ones_that_prometheus_takes(tmp_path):
    """promtool checks their syntax; a Prometheus that has loaded them evaluates each."""
    done = subprocess.run([found("promtool"), "check", "rules", ALERTS], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {ALERTS.read_text().count('- alert:')} rules found" in done.stdout.decode()
    with prometheus(tmp_path, [f"127.0.0.1:{free_ports(1)[0]}"], rules=[str(ALERTS)]) as url:
        wait_for(lambda: answer(url, 'ALERTS{alertname="DoklAgentDown"}'), "an agent is down", 60)
        told = httpx.get(url.replace("query", "rules"), trust_env=False).json()["data"]["groups"]
        assert {rule["health"] for group in told for rule in group["rules"]} == {"ok"}


def test_prometheus_answers_what_the_dashboard_asks(tmp_path):
    [port] = free_ports(1)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [(panel["title"], each["expr"]) for panel in panels for each in panel["targets"]]
    model = Model(sigma=1.0, D=30, seed=3, method="squares")
    policy = ExchangePolicy(every_seconds=0.1, fewest_rows=5)
    with (
        Mosquitto(port, tmp_path),
        Lab(tmp_path, ring("a", "b"), model=model, exchange=policy, secure=False) as lab,
    ):
        source = SensorSource("mqtt", (f"127.0.0.1:{port}",), ("stations/#",), predictions="said/a")
        bounded = replace(
            lab.network.inputs, ranges=((-99.0, 99.0),) * len(lab.network.inputs.numeric)
        )
        lab.write(replace(lab.network, sources={"a": source}, inputs=bounded))
        lab.start(env=SECRETS)
        targets = [lab.network.node(name).http for name in lab.network.names]
        with prometheus(tmp_path, targets) as url:
            for seed in range(3):
                publish(port, [*readings(10, seed), b"poison"])
                lab.post("b", *samples(40, seed))
            unanswered = dict(asked)

            def all_answered():
                for title, question in asked:
                    if answer(url, question):
                        unanswered.pop(title, None)
                return not unanswered.keys() - QUIET

            wait_for(all_answered, f"answers to {unanswered}", 60)
            (there,) = answer(url, "sum(dokl_source_connected)")
            assert there["value"][1] == "1"
