"""Small descriptions of live networks for tests."""

from dataclasses import replace
from pathlib import Path

from dokl.live.certificates import Authority, node_files
from dokl.live.certificates.files import new_folder
from dokl.live.description import About, AgreedInputs, Model, Network, Node, read
from dokl.live.description.text import text


def small(path="lab.toml", links=(("a", "b"), ("b", "c")), secure=False, **parts):
    """Three nodes in a line, three inputs; parts replace sections."""
    names = dict.fromkeys(end for link in links for end in link)
    security = "mtls" if secure else "insecure-loopback"
    about = About("lab", tuple(links), security, "lab.certs" if secure else None)
    nodes = {
        name: Node(f"127.0.0.1:{7000 + i}", http=f"127.0.0.1:{8000 + i}")
        for i, name in enumerate(names)
    }
    made = Network(about, Model(D=20), AgreedInputs.plain(3), nodes=nodes, path=Path(path))
    return replace(made, **parts)


def on_disk(folder, days=365, **parts):
    """The same as files in a folder, with certificates; read back."""
    network = small(folder / "lab.toml", secure=True, **parts)
    authority = Authority.new("lab")
    content = authority.files()
    for name in network.names:
        content |= node_files(network, name, authority, days)
    with new_folder(network.folder, content):
        network.path.write_text(text(network))
    return read(network.path)
