"""The network that tests play: what it breaks must be what a test asked for."""

import socket
import time

from proxy import Proxy


def test_a_connection_passes_after_others_were_closed_by_the_far_side():
    """It was never woken where it got the descriptor of one that was closed under a reader."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Proxy(f"127.0.0.1:{server.getsockname()[1]}") as proxy,
    ):
        host, _, port = proxy.address.rpartition(":")
        for _ in range(6):
            with socket.create_connection((host, int(port)), timeout=5) as near:
                far, _ = server.accept()
                far.settimeout(5)
                near.sendall(b"there")
                assert far.recv(10) == b"there"
                far.sendall(b"back")
                assert near.recv(10) == b"back"
                far.close()
                time.sleep(0.02)  # the proxy sees one end closed while it reads at the other
