"""Certificates of a live network: who made them, for whom, who can read them."""

import ipaddress
import os
import ssl
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store

from dokl.base.errors import BadFile, BadInput
from dokl.live.certificates import (
    Authority,
    expires,
    hosts,
    load_certificate,
    load_key,
    node_files,
)
from dokl.live.certificates import files as certificate_files
from dokl.live.certificates.checks import problems
from dokl.live.certificates.files import new_folder, replace_files
from dokl.live.description import Node
from live_networks import on_disk, small


@pytest.fixture
def network(tmp_path):
    return on_disk(tmp_path)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- what they say -----------------------------------------------------------------------------
def test_a_certificate_is_good_by_its_authority_for_both_ends(network):
    ca, at, _ = network.certificate_files("a")
    store = Store([load_certificate(ca)])
    policy = PolicyBuilder().store(store)
    place = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    assert policy.build_server_verifier(place).verify(load_certificate(at), [])
    assert policy.build_server_verifier(x509.DNSName("localhost")).verify(load_certificate(at), [])
    assert policy.build_client_verifier().verify(load_certificate(at), []).subjects


def test_a_certificate_is_made_out_to_its_node(network):
    certificate = load_certificate(network.certificate_files("b")[1])
    assert certificate.subject.rfc4514_string() == "CN=b"
    assert isinstance(certificate.public_key().curve, ec.SECP256R1)
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    both = x509.oid.ExtendedKeyUsageOID
    assert set(uses) == {both.SERVER_AUTH, both.CLIENT_AUTH}
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_dates_leave_room_for_slow_clocks(network):
    now, day = datetime.now(UTC), timedelta(days=1)
    ca, at = map(load_certificate, network.certificate_files("a")[:2])
    assert at.not_valid_before_utc < now - timedelta(minutes=30)
    assert 364 * day < at.not_valid_after_utc - now <= 365 * day
    assert ca.not_valid_after_utc - now > 3649 * day
    assert expires(network, "a") == at.not_valid_after_utc
    assert expires(small(), "a") is None


def test_a_node_does_not_outlive_its_authority():
    authority = Authority.new("lab", days=10)
    node = x509.load_pem_x509_certificate(authority.issue("a", ["localhost"], 365)["pem"])
    assert node.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_keys_are_pkcs8_and_tls_takes_them(network):
    ca, at, key = network.certificate_files("a")
    assert key.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(at, key)
    context.load_verify_locations(ca)


def test_hosts_are_all_by_which_a_node_is_dialled():
    nodes = {
        "a": Node("gate.example:7447", "0.0.0.0:7447", "10.0.0.7:8000"),
        "b": Node("[2001:0db8::1]:7447"),
        "c": Node("127.0.0.1:7447"),
    }
    network = small(nodes=nodes, routes={"b->a": "proxy.example:9000", "c->b": "127.0.0.2:1"})
    assert hosts(network, "a") == ["gate.example", "10.0.0.7", "proxy.example"]
    assert hosts(network, "b") == ["2001:db8::1", "127.0.0.2", "localhost", "127.0.0.1"]
    assert hosts(network, "c") == ["127.0.0.1", "localhost"]


def test_tokens_are_each_nodes_own(network):
    assert len({network.token(name) for name in network.names}) == 3
    assert len(network.token("a")) >= 40
    (network.folder / "a.token").unlink()
    assert network.token("a") is None


# -- files -------------------------------------------------------------------------------------
def test_only_the_owner_can_read_keys_and_tokens(tmp_path):
    before = os.umask(0)
    try:
        network = on_disk(tmp_path)
    finally:
        os.umask(before)
    assert mode(network.folder) == 0o700
    for path in network.folder.iterdir():
        assert mode(path) == (0o644 if path.suffix == ".pem" else 0o600), path
    assert len(list(network.folder.iterdir())) == 2 + 3 * 4


def test_a_folder_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    def full(path, data, mode=None):
        raise OSError(28, "No space left on device")

    with pytest.raises(RuntimeError), new_folder(tmp_path / "c", {"a.key": b"1"}):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(certificate_files, "_write_new", full)
    with pytest.raises(BadFile, match="No space left"), new_folder(tmp_path / "c", {"a.key": b"1"}):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_folder_stays_unless_all_goes_well(tmp_path):
    folder = tmp_path / "c"
    with new_folder(folder, {"a.key": b"old"}):
        pass
    with pytest.raises(BadInput, match="--overwrite"), new_folder(folder, {"a.key": b"new"}):
        pass
    with pytest.raises(RuntimeError), new_folder(folder, {"b.key": b"new"}, overwrite=True):
        raise RuntimeError
    assert content(folder) == {"a.key": b"old"}
    with new_folder(folder, {"b.key": b"new"}, overwrite=True):
        pass
    assert content(folder) == {"b.key": b"new"}
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_with_other_things_in_it_is_never_replaced(tmp_path):
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "thesis.txt").write_text("!")
    change = new_folder(folder, {"a.key": b"new"}, overwrite=True)
    with pytest.raises(BadInput, match=r"thesis\.txt is in it"), change:
        pass
    assert content(folder) == {"thesis.txt": b"!"}


def test_files_are_replaced_together_or_not_at_all(tmp_path, monkeypatch):
    with new_folder(tmp_path / "c", {"a.key": b"1", "a.pem": b"2", "b.key": b"3"}):
        pass
    folder, old = tmp_path / "c", content(tmp_path / "c")
    change, during = {"a.key": b"x", "a.pem": b"y", "b.key": None, "d.key": b"z"}, {}
    with pytest.raises(RuntimeError), replace_files(folder, change):
        raise RuntimeError(during.update(content(folder)))
    assert during == {"a.key": b"x", "a.pem": b"y", "d.key": b"z"}
    assert content(folder) == old
    really, calls = os.replace, []

    def second_fails(a, b):
        calls.append(b)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        really(a, b)

    monkeypatch.setattr(certificate_files.os, "replace", second_fails)
    with pytest.raises(BadFile, match="Input/output"), replace_files(folder, change):
        pass
    assert content(folder) == old
    assert mode(folder / "a.key") == 0o600


# -- what can be wrong -------------------------------------------------------------------------
def spoiled(network, name, part, data):
    path = network.folder / f"{name}.{part}"
    path.unlink()
    if data is not None:
        path.write_bytes(data)
        path.chmod(0o600)
    return problems(network)


def test_nothing_is_wrong_with_new_ones(network):
    assert problems(network) == []


def test_no_certificates_at_all(tmp_path):
    found = problems(small(tmp_path / "lab.toml", secure=True))
    assert len(found) == 1
    assert "ca.pem: there is no such file" in found[0]


@pytest.mark.parametrize(
    ("part", "data", "message"),
    [
        ("pem", None, "a.pem: there is no such file: dokl network renew"),
        ("pem", b"nonsense", "a.pem: this is no certificate in PEM form"),
        ("key", None, "a.key: there is no such file"),
        ("key", b"nonsense", "a.key: this is no key in PEM form"),
    ],
)
def test_missing_and_damaged_files(network, part, data, message):
    (found,) = spoiled(network, "a", part, data)
    assert message in found


def test_a_certificate_of_another_authority(network):
    other = Authority.new("lab").issue("a", ["127.0.0.1", "localhost"])
    found = spoiled(network, "a", "pem", other["pem"])
    assert ["was not made by the authority" in line for line in found] == [True]


def test_a_key_of_another_certificate(network):
    (found,) = spoiled(network, "a", "key", (network.folder / "b.key").read_bytes())
    assert "does not belong to a.pem" in found


def test_somebody_elses_certificate(network):
    (network.folder / "a.key").write_bytes((network.folder / "b.key").read_bytes())
    (found,) = spoiled(network, "a", "pem", (network.folder / "b.pem").read_bytes())
    assert "made out to CN=b, and not to CN=a" in found


@pytest.mark.parametrize(("days", "message"), [(400, "ran out on"), (-1, "valid only from")])
def test_dates_that_are_over_or_not_yet(network, monkeypatch, days, message):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=days)

    monkeypatch.setattr("dokl.live.certificates.checks.datetime", Clock)
    nodes = [line for line in problems(network) if message in line and "ca.pem" not in line]
    assert len(nodes) == 3


def test_an_authority_that_ran_out_issues_nothing(network, monkeypatch):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=4000)

    monkeypatch.setattr("dokl.live.certificates.authority.datetime", Clock)
    with pytest.raises(BadInput, match="authority's certificate ran out"):
        Authority.load(network.folder).issue("a", ["localhost"])


def test_an_address_that_the_certificate_does_not_know(network):
    nodes = network.nodes | {"c": Node("10.0.0.7:7447", "0.0.0.0:7447", "127.0.0.1:8009")}
    (found,) = problems(replace(network, nodes=nodes))
    assert "c.pem: not made out for 10.0.0.7" in found
    assert "lab.toml --name c, where ca.key is" in found


@pytest.mark.parametrize("name", ["a.key", "ca.key", "b.token"])
def test_a_secret_that_others_can_read(network, name):
    (network.folder / name).chmod(0o640)
    (found,) = problems(network)
    assert f"{name}: others can read it (mode 640): chmod 600" in found


def test_an_open_face_needs_a_token(network):
    nodes = network.nodes | {"c": replace(network.nodes["c"], http="10.0.0.7:8000")}
    (network.folder / "c.token").unlink()
    found = problems(replace(network, nodes=nodes))
    assert any("c.token: missing" in line for line in found)


def test_on_a_nodes_own_machine_the_others_are_not_looked_for(network):
    for path in network.folder.iterdir():
        if path.stem not in ("a", "ca") or path.name == "ca.key":
            path.unlink()
    assert problems(network, "a") == []
    assert len(problems(network)) == 2


def test_an_authority_whose_key_is_not_its_own(network):
    (network.folder / "ca.key").write_bytes((network.folder / "a.key").read_bytes())
    with pytest.raises(BadFile, match=r"does not belong to ca\.pem"):
        Authority.load(network.folder)


def test_each_issue_has_a_key_of_its_own(network):
    authority = Authority.load(network.folder)
    one, two = (node_files(network, "a", authority, 5) for _ in range(2))
    assert one["a.key"] != two["a.key"]
    assert load_key(network.folder / "a.key").key_size == 256
