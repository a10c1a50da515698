"""Addresses at which workers on other hosts meet their coordinator."""

from __future__ import annotations

import socket

from perfguard.errors import UsageError


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`.

    Raises:
        UsageError: It is something else, or no host has this name.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"{text!r} is no address; write HOST:PORT, such as 10.0.0.1:29500")
    try:
        socket.getaddrinfo(host, int(port))
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"{text}: no host is known as {host!r} ({getattr(error, 'strerror', None) or error})"
        ) from error
    return host, int(port)
