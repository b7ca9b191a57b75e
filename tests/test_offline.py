"""The suite runs offline, so that nothing reaches for the network unasked: what tries to fails."""

import socket
import subprocess
import sys

import pytest

CONNECT = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"


def test_other_machines_are_out_of_reach() -> None:
    with pytest.raises(RuntimeError, match=r"tests are offline, .* asks for 192\.0\.2\.1"):
        exec(CONNECT)
    with pytest.raises(RuntimeError, match=r"asks for example\.com"):
        socket.getaddrinfo("example.com", 443)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, pytest.raises(RuntimeError):
        udp.sendto(b"x", ("192.0.2.1", 53))


def test_other_machines_are_out_of_reach_of_child_processes() -> None:
    done = subprocess.run([sys.executable, "-c", CONNECT], capture_output=True, text=True)
    assert "tests are offline, and this one asks for 192.0.2.1" in done.stderr


def test_this_machine_is_within_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=10).close()
