"""What is deployed fits together: alerts and their page, Compose, Kubernetes, the image."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from test_agents_gauges import asked_for, full, names_in

from dokl.cli.agent import run as agent_command
from dokl.cli.network import network as network_command
from dokl.live.description import ExchangePolicy, Model, read
from dokl.live.http import gauges, openapi
from dokl.live.process import Latency
from dokl.live.transports.memory import Hub
from http_agents import network as described
from live_networks import small
from memory_agents import WAIT, arrival, starting, wait

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
PAGE = ROOT / "docs" / "live" / "alerts.md"


def rules():
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


# -- alerts ------------------------------------------------------------------------------------
def test_every_alert_has_a_section_that_says_what_it_means_and_what_to_do():
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]
    found = {text.partition("\n")[0]: text for text in sections}
    assert list(found) == list(rules())
    for name, rule in rules().items():
        text = " ".join(found[name].split())
        assert f"`{rule['expr']}`" in text, "the page says the rule that is in the file"
        assert "**Cause.**" in text
        assert len(text.partition("**Remedy.**")[2]) > 40
        assert f"; {rule['labels']['severity']}." in text
        assert rule["annotations"]["runbook"] == f"docs/live/alerts.md#{name.lower()}"


def test_rules_have_what_prometheus_wants():
    assert len(rules()) > 15
    for name, rule in rules().items():
        assert re.fullmatch(r"Dokl[A-Z]\w+", name)
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[mhd]", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]


ELSEWHERE = {  # where there is a source, a broker, a certificate, or a number out of its range
    "dokl_source_connected", "dokl_dead_letters_total", "dokl_bad_lines_total",
    "dokl_certificate_expires_seconds", "dokl_out_of_range_total",
}  # fmt: skip


@pytest.mark.parametrize("method", ["gradient", "squares"])
def test_rules_ask_for_what_real_agents_tell(method, tmp_path):
    policy = ExchangePolicy(every_seconds=0.02, fewest_rows=5)
    network = small(links=(("a", "b"),), model=Model(D=20, method=method), exchange=policy)
    hub, took = Hub(), Latency()
    took.add(0.004)
    with starting(tmp_path) as start:
        a, b = (start(network, name, hub=hub) for name in "ab")
        for agent in (a, b):
            agent.submit(arrival(60, 1)).result(WAIT)
        neighbour = lambda: a.status()["neighbours"]["b"]  # noqa: E731
        wait(lambda: neighbour()["age_s"] is not None and neighbour()["version"])
        wait(lambda: a.status()["disagreement"] is not None)
        told = names_in(gauges.text(a.status(), {200: 1}, {"/samples": took}).decode())
    told |= {"dokl_known_rows"}  # by which a rule leaves networks by sums out
    asked = set().union(*(asked_for(rule["expr"]) for rule in rules().values()))
    assert asked - told == ELSEWHERE
    assert names_in(full()) >= ELSEWHERE


# -- Compose and Kubernetes --------------------------------------------------------------------
OPTIONS = {option for parameter in agent_command.params for option in parameter.opts}
PATHS = set(openapi.document(described(), secure=True)["paths"])


def check_agent(words):
    """A command line of `dokl agent` that click would take."""
    given = [word for word in words if word.startswith("--")]
    assert set(given) <= OPTIONS
    with agent_command.make_context("run", list(words)) as context:
        return context.params


def steps(name, program):
    """Commands of this program among the comments of a file."""
    lines = (DEPLOY / name).read_text().splitlines()
    text = "\n".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    joined = text.replace("\\\n", " ")
    return [shlex.split(line) for line in joined.splitlines() if line.startswith(f"{program} ")]


def prepared(name, folder, monkeypatch):
    """The network that the comments of a file make."""
    monkeypatch.chdir(folder)
    run = CliRunner()
    first, *later = steps(name, "dokl network")
    assert first[2] == "new"
    done = run.invoke(network_command, first[2:])
    assert done.exit_code == 0, done.output
    (edit,) = steps(name, "sed -i")
    subprocess.run(edit, check=True)
    for each in later:
        done = run.invoke(network_command, each[2:])
        assert done.exit_code == 0, done.output
    return read(folder / "lab.toml")


def image():
    """Entry point of the image, and what is copied into it."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    entry = next(line for line in lines if line.startswith("ENTRYPOINT "))
    copied = next(line for line in lines if line.startswith("COPY ")).split()[1:-1]
    return yaml.safe_load(entry.partition(" ")[2]), copied


def test_what_goes_into_the_image_is_not_ignored():
    _, copied = image()
    let_in = {line[1:] for line in (DEPLOY / ".dockerignore").read_text().split() if line[0] == "!"}
    assert set(copied) <= let_in


def test_the_containers_of_compose_are_the_nodes_of_the_network(tmp_path, monkeypatch):
    made = prepared("compose.yaml", tmp_path, monkeypatch)
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == set(made.names)
    entry, _ = image()
    assert entry[:2] == ["dokl", "agent"]
    known = {
        "build", "restart", "stop_grace_period", "read_only", "tmpfs", "mem_limit", "cap_drop",
        "security_opt", "ulimits", "healthcheck", "user", "command", "environment", "ports",
        "volumes",
    }  # fmt: skip
    for name, service in services.items():
        assert set(service) == known
        given = check_agent([*entry[2:], *service["command"]])
        assert given["name"] == name
        face, node = service["environment"]["FACE"], made.node(name)
        host, port = face.split(":")
        assert (host, node.http) == (name, f"0.0.0.0:{port}")
        assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
        assert node.address.split(":")[0] == name
        mounts = [each.split(":") for each in service["volumes"]]
        assert [each[1] for each in mounts] == ["/lab", "/state"]
        assert all(f"/{name}" in each[0] for each in mounts)
        assert str(given["description"]) == "/lab/lab.toml"
        assert str(given["state"]) == "/state"
        test = service["healthcheck"]["test"]
        assert test[:3] == ["CMD", "python", "-c"]
        compile(test[3], "healthcheck", "exec")
        assert set(re.findall(r"'(/\w+z)'", test[3])) == {"/healthz"} <= PATHS
        assert int(service["stop_grace_period"].removesuffix("s")) > 10


# Fields of Kubernetes that are used, with their types; a dictionary is an object, a list one of
# such things, "map" of words. https://kubernetes.io/docs/reference/kubernetes-api/
META = {"name": str, "labels": "map", "annotations": "map"}
SECURITY = {
    "allowPrivilegeEscalation": bool, "readOnlyRootFilesystem": bool,
    "capabilities": {"drop": [str]},
}  # fmt: skip
PROBE = {
    "httpGet": {"path": str, "port": str, "scheme": str},
    "periodSeconds": int, "timeoutSeconds": int, "failureThreshold": int,
}  # fmt: skip
CONTAINER = {
    "name": str, "image": str, "imagePullPolicy": str, "command": [str], "args": [str],
    "env": [{"name": str, "valueFrom": {"fieldRef": {"fieldPath": str}}}],
    "ports": [{"name": str, "containerPort": int}],
    "startupProbe": PROBE, "livenessProbe": PROBE, "readinessProbe": PROBE,
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}],
    "securityContext": SECURITY, "resources": {"requests": "map", "limits": "map"},
}  # fmt: skip
POD = {
    "automountServiceAccountToken": bool, "terminationGracePeriodSeconds": int,
    "securityContext": {
        "runAsNonRoot": bool, "runAsUser": int, "runAsGroup": int, "fsGroup": int,
        "seccompProfile": {"type": str},
    },
    "initContainers": [CONTAINER], "containers": [CONTAINER],
    "volumes": [{
        "name": str, "configMap": {"name": str}, "emptyDir": {"medium": str},
        "secret": {"secretName": str, "defaultMode": int},
    }],
}  # fmt: skip
PEERS = {"podSelector": {"matchLabels": "map"}}
KINDS = {
    "Service": ("v1", {
        "clusterIP": str, "publishNotReadyAddresses": bool, "selector": "map",
        "ports": [{"name": str, "port": int, "targetPort": str}],
    }),
    "NetworkPolicy": ("networking.k8s.io/v1", {
        **PEERS, "policyTypes": [str],
        "ingress": [{"from": [PEERS], "ports": [{"protocol": str, "port": str}]}],
    }),
    "StatefulSet": ("apps/v1", {
        "serviceName": str, "replicas": int, "podManagementPolicy": str,
        "selector": {"matchLabels": "map"}, "template": {"metadata": META, "spec": POD},
        "volumeClaimTemplates": [{
            "metadata": META,
            "spec": {"accessModes": [str], "resources": {"requests": "map"}},
        }],
    }),
}  # fmt: skip


def misfits(value, schema, where):
    """What is not as the schema has it, in words."""
    if schema == "map":
        fits = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        return [] if fits else [f"{where}: words are wanted, got {value!r}"]
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{where} is no list"]
        return [
            text for i, v in enumerate(value) for text in misfits(v, schema[0], f"{where}[{i}]")
        ]
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{where} is no object"]
        found = [f"{where}.{key} is not known" for key in value if key not in schema]
        known = [key for key in value if key in schema]
        return found + [t for k in known for t in misfits(value[k], schema[k], f"{where}.{k}")]
    return [] if type(value) is schema else [f"{where}: {schema.__name__} wanted, got {value!r}"]


def cluster():
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    return {each["kind"]: each for each in found}


def test_a_misspelt_field_would_be_found():
    assert misfits({"replicas": "3"}, {"replicas": int}, "spec") == [
        "spec.replicas: int wanted, got '3'"
    ]
    assert misfits({"replica": 3}, {"replicas": int}, "spec") == ["spec.replica is not known"]
    assert misfits({"command": "dokl"}, {"command": [str]}, "c") == ["c.command is no list"]
    assert misfits({"labels": {"port": 1}}, META, "m") != []


@pytest.mark.parametrize("kind", list(KINDS))
def test_kubernetes_knows_every_field(kind):
    assert set(cluster()) == set(KINDS)
    version, schema = KINDS[kind]
    whole = {"apiVersion": str, "kind": str, "metadata": META, "spec": schema}
    found = cluster()[kind]
    assert misfits(found, whole, kind) == []
    assert found["apiVersion"] == version


def test_the_pods_are_the_nodes_of_the_network(tmp_path, monkeypatch):
    made = prepared("kubernetes.yaml", tmp_path, monkeypatch)
    found = cluster()
    spec, service = found["StatefulSet"]["spec"], found["Service"]
    name, count = found["StatefulSet"]["metadata"]["name"], spec["replicas"]
    pods = [f"{name}-{i}" for i in range(count)]
    assert list(made.names) == pods
    labels = spec["template"]["metadata"]["labels"]
    policy = found["NetworkPolicy"]["spec"]
    for selector in (
        spec["selector"]["matchLabels"], service["spec"]["selector"],
        policy["podSelector"]["matchLabels"],
        policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"],
    ):  # fmt: skip
        assert selector == labels
    assert spec["serviceName"] == service["metadata"]["name"]
    (agent,) = spec["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in agent["ports"]}
    assert {p["targetPort"]: p["port"] for p in service["spec"]["ports"]} == ports
    assert {p["port"] for rule in policy["ingress"] for p in rule["ports"]} == set(ports)
    for pod in pods:
        node = made.node(pod)
        assert node.address == f"{pod}.{spec['serviceName']}:{ports['link']}"
        assert node.listen == f"0.0.0.0:{ports['link']}"
        given = check_agent([w.replace("$(POD_NAME)", pod) for w in agent["command"][2:]])
        assert given["http"] == f"0.0.0.0:{ports['http']}"
        assert (given["name"], str(given["description"])) == (pod, "/lab/lab.toml")
        assert given["state"].parent == Path("/state"), "a folder below, which is the agent's own"
        for path in (tmp_path / "lab.certs").glob(f"{pod}.*"):
            assert path.suffix in (".pem", ".key", ".token")


def test_volumes_probes_and_rights_of_pods():
    pod = cluster()["StatefulSet"]["spec"]["template"]["spec"]
    claims = {
        c["metadata"]["name"] for c in cluster()["StatefulSet"]["spec"]["volumeClaimTemplates"]
    }
    volumes = {volume["name"] for volume in pod["volumes"]} | claims
    both = [*pod["initContainers"], *pod["containers"]]
    assert {m["name"] for c in both for m in c["volumeMounts"]} == volumes
    for container in both:
        rights = container["securityContext"]
        assert not rights["allowPrivilegeEscalation"]
        assert rights["readOnlyRootFilesystem"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
    (agent,) = pod["containers"]
    assert not {m["name"] for m in agent["volumeMounts"]} & {"certs", "config"}, "others' keys"
    names = {port["name"] for port in agent["ports"]}
    probes = {
        kind: agent[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    }
    assert {probe["port"] for probe in probes.values()} <= names
    paths = {kind: probe["path"] for kind, probe in probes.items()}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert set(paths.values()) <= PATHS
    told = (DEPLOY / "kubernetes.yaml").read_text()
    for volume in pod["volumes"]:
        for kind, key in (("configMap", "name"), ("secret", "secretName")):
            if kind in volume:
                wanted = volume[kind][key]
                assert re.search(rf"kubectl create (configmap|secret generic) {wanted}\b", told)
