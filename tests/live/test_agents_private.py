"""What is an agent's own stays so: its folder, its tokens, its signals, its authority."""

import os
import ssl
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from dokl.base.errors import BadFile, BadInput
from dokl.live.certificates import load_authorities, load_certificate
from dokl.live.certificates.checks import issued_by, problems
from dokl.live.http import app as http_app
from dokl.live.jobs import agents, networks, signals
from dokl.live.store import StoreFailed
from dokl.live.store.database import lock_store, open_database
from dokl.live.store.folder import private_folder
from http_agents import ROW, FakeAgent, ask
from live_networks import on_disk

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"


# -- the folder ---------------------------------------------------------------------------------
def test_a_new_folder_is_its_owners_alone(tmp_path):
    folder = private_folder(tmp_path / "some" / "lab.state")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder(folder) == folder


def test_a_folder_that_is_not_ours_alone_is_refused(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(BadFile, match="symbolic link"):
        private_folder(tmp_path / "link")
    (tmp_path / "real").chmod(0o770)
    with pytest.raises(BadFile, match=r"others can write to it .mode 770.: chmod 700"):
        private_folder(tmp_path / "real")
    (tmp_path / "real").chmod(0o755)
    private_folder(tmp_path / "real")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(BadFile, match="this is user 54321"):
        private_folder(tmp_path / "real")


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_the_lock_follows_no_link_to_a_victim(tmp_path, kind):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    getattr(tmp_path / "a.db.lock", kind)(victim)
    with pytest.raises(BadFile, match="cannot be locked"):
        lock_store(tmp_path / "a.db")
    getattr(tmp_path / "a.db", kind)(victim)
    with pytest.raises(BadFile, match="cannot be opened"):
        open_database(tmp_path / "a.db", "process")
    assert victim.read_text() == "precious"


def test_log_lines_follow_no_link(tmp_path):
    (tmp_path / "a.log").symlink_to(tmp_path / "victim")
    with pytest.raises(BadInput, match="cannot be written there"):
        agents.log_file(tmp_path / "a.log")


def test_a_folder_of_others_names_no_process(tmp_path):
    network = on_disk(tmp_path)
    (tmp_path / "lab.state").mkdir()
    (tmp_path / "lab.state").chmod(0o777)
    with pytest.raises(BadFile, match="others can write"):
        signals.reload(network.path, (), None)


# -- who may ask --------------------------------------------------------------------------------
@pytest.mark.parametrize(("token", "status"), [("r3ad", 403), ("wr1te", 200), ("n0ne", 401)])
def test_one_token_reads_and_one_writes(token, status):
    app = http_app.app(FakeAgent(), token="wr1te", reading="r3ad")
    how = {"headers": {"authorization": f"Bearer {token}"}, "base": "https://10.0.0.7:8080"}
    assert ask(app, "POST", "/samples", json=ROW, **how).status_code == status
    inputs = {key: value for key, value in ROW.items() if key != "y"}
    late = {"id": "noon", **inputs}
    assert ask(app, "POST", "/predict?remember=true", json=late, **how).status_code == status
    assert ask(app, "POST", "/learn", json={"id": 1, "y": ROW["y"]}, **how).status_code == status
    for method, path, more in (
        ("GET", "/status", {}),
        ("GET", "/openapi.json", {}),
        ("POST", "/predict", {"json": inputs}),
    ):
        expected = 401 if status == 401 else 200
        assert ask(app, method, path, **more, **how).status_code == expected


def test_errors_show_no_folders():
    def fails(future):
        raise StoreFailed("/var/lib/dokl/a.db: the disk is full", full=True)

    answer = ask(http_app.app(FakeAgent(fails)), "POST", "/samples", json=ROW)
    assert answer.json()["error"] == "a.db: the disk is full"


# -- signals ------------------------------------------------------------------------------------
EARLY = """
import os, signal, sys, types
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup leaves it ignored
import dokl.__main__ as begin
sys.argv = ["dokl", *sys.argv[1:]]
fake = types.ModuleType("dokl.cli")
fake.main = lambda: os.kill(os.getpid(), signal.SIGHUP)
sys.modules["dokl.cli"] = fake
begin.main()
print(signal.getsignal(signal.SIGHUP).came)
"""


@pytest.mark.parametrize(("words", "ends"), [("agent lab.toml", False), ("agent reload x", True)])
def test_a_hangup_before_the_agent_is_there_does_not_end_it(words, ends):
    command = [sys.executable, "-c", EARLY, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.strip()) == ((-1, "") if ends else (0, "True"))


ELSEWHERE = """
import signal, threading, time
from dokl.live.jobs.waiting import wait_until
done = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: done.set())

def interrupt():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=interrupt).start()
wait_until(done)
print("ended")
"""


def test_a_signal_that_another_thread_gets_is_obeyed():
    command = [sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "ended"


def test_a_hangup_that_was_held_makes_the_agent_read_its_description_again(monkeypatch):
    def held(*_):
        pass

    held.came = True
    monkeypatch.setattr(agents.signal, "signal", lambda number, handler: held)
    read = []
    with ExitStack() as stack:
        listens = agents._obey(Path("lab.toml"), Event(), stack)
        listens(SimpleNamespace(reload=read.append))
    assert read == [Path("lab.toml")]


# -- the authority ------------------------------------------------------------------------------
@contextmanager
def _handshake(server, client, ca_server, ca_client):
    """A TLS handshake in memory; `server` and `client` are the files of a certificate and a key."""
    sides = []
    kinds = (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    for kind, files, ca in zip(kinds, (server, client), (ca_server, ca_client), strict=True):
        context = ssl.SSLContext(kind)
        context.check_hostname, context.verify_mode = False, ssl.CERT_REQUIRED
        context.load_verify_locations(ca)
        context.load_cert_chain(*files)
        sides.append(context)
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (sides[0].wrap_bio(one, two, server_side=True), sides[1].wrap_bio(two, one))
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    yield ends


def meet(a, b):
    """Whether nodes of two folders of certificates accept each other."""
    try:
        with _handshake(
            (a / "a.pem", a / "a.key"), (b / "b.pem", b / "b.key"), a / "ca.pem", b / "ca.pem"
        ) as ends:
            return all(end.version() for end in ends)
    except ssl.SSLError:
        return False


def copied(network, to):
    to.mkdir()
    for path in network.folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def test_the_authority_gets_new_dates_and_all_certificates_stay_good(tmp_path):
    network = on_disk(tmp_path)
    before = copied(network, tmp_path / "before")
    networks.renew_authority(network.path, days=5000)
    old, new = (load_certificate(folder / "ca.pem") for folder in (before, network.folder))
    assert new.not_valid_after_utc > old.not_valid_after_utc
    assert new.serial_number != old.serial_number
    assert problems(network) == []
    networks.renew(network.path, ["b"])
    assert meet(before, network.folder)  # who has not got anything yet, and who has
    assert meet(network.folder, before)


def test_the_authority_gets_a_new_key_in_three_steps(tmp_path):
    network = on_disk(tmp_path)
    steps = [copied(network, tmp_path / "0")]
    for number, change in enumerate((
        lambda: networks.renew_authority(network.path, "key"),
        lambda: networks.renew(network.path),
        lambda: networks.renew_authority(network.path, "last"),
    )):  # fmt: skip
        change()
        assert problems(network) == []
        steps.append(copied(network, tmp_path / str(number + 1)))
    assert [len(load_authorities(step / "ca.pem")) for step in steps] == [1, 2, 2, 1]
    for before, after in pairwise(steps):  # some have the new files, some not
        assert meet(before, after)
        assert meet(after, before)
    assert not meet(steps[0], steps[3])
    assert not issued_by(
        load_certificate(steps[0] / "a.pem"), load_certificate(steps[3] / "ca.pem")
    )


def test_an_authority_in_use_is_not_forgotten(tmp_path):
    network = on_disk(tmp_path)
    networks.renew_authority(network.path, "key")
    with pytest.raises(BadInput, match=r"a\.pem is of the earlier authority"):
        networks.renew_authority(network.path, "last")
    assert problems(network) == []


# -- what is deployed ---------------------------------------------------------------------------
def test_the_unit_and_the_containers_get_little():
    unit = (DEPLOY / "dokl-agent@.service").read_text().splitlines()
    for line in ("LimitNOFILE=8192", "CapabilityBoundingSet=", "UMask=0077"):
        assert line in unit
    compose = (DEPLOY / "compose.yaml").read_text()
    for words in ("cap_drop: [ALL]", "no-new-privileges:true", "healthcheck:", "/healthz"):
        assert words in compose
    ignored = (DEPLOY / ".dockerignore").read_text().split()
    assert {"*", "!dokl-*.whl"} <= set(ignored)
