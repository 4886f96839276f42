"""How adapters with a port of their own listen on it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any


async def listen(host: str, port: int, *, backlog: int) -> list[socket.socket]:
    """Listen at all addresses of a name.

    Args:
        host: name or address; an empty one stands for all addresses of the machine.
        port: TCP port; for 0 the system chooses one for the first address, which is that of the others too.
        backlog: connections that the kernel may hold while others are accepted; it holds no more than
            ``net.core.somaxconn``.

    Returns:
        Sockets that listen and do not block, one for each address, at least one.

    Raises:
        OSError: the name has no address, or one of them cannot be listened on; nothing listens then.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            listeners.append(_listen(family, (address[0], port, *address[2:]), backlog))
            port = int(listeners[-1].getsockname()[1])
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


# lb.agent has the like of it: lb does not import the gateway.
def _listen(family: int, address: Any, backlog: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Else it would take the IPv4 port of the same number, for which there is a listener of its own.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"{address[0]}, port {address[1]}, cannot be listened on: {error.strerror}"
        ) from None
    return listener
