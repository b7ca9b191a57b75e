"""No test reaches for the network: connections and look-ups beyond this machine end in an error.

conftest imports this module for the tests themselves, and puts its folder on PYTHONPATH for the
Python processes that they start.
"""

import os
import socket
import sys
from typing import Any

_STREAM = 1
"""SOCK_STREAM; connecting a datagram socket sends nothing."""
_HERE = ("", "localhost", "::", "::1", "0.0.0.0", os.uname().nodename)


def is_here(host: str) -> bool:
    """Whether this machine has the address: processes of a cluster call each other by it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def refuse(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook. It raises no OSError, which would look like a network that is down."""
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event == "socket.sendto" or (event == "socket.connect" and args[0].type == _STREAM):
        host = args[1][0] if isinstance(args[1], tuple) else ""  # else a path, of AF_UNIX
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host or ""
    # names under .invalid are nowhere, and a test asks for one on purpose
    if host in _HERE or host.startswith("127.") or host.endswith(".invalid"):
        return
    if not is_here(host):
        raise RuntimeError(f"tests are offline, and this one asks for {host}")


sys.addaudithook(refuse)
