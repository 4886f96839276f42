"""The first packets of a connection: hello or resume one way, welcome or error the other (protocol section 4)."""

from __future__ import annotations

import asyncio

from gateway.client.transport import AttemptFailed, Transport
from gateway.core.client.endings import Ending
from gateway.core.wire.codec import decode_from_server, encode_link
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Error, Hello, Packet, Resume, Welcome


async def shake_hands(transport: Transport, first: Hello | Resume, *, seconds: float) -> tuple[Welcome, list[Packet]]:
    """Send the first packet and wait for the welcome.

    Args:
        transport: a fresh connection; the caller closes it if this fails.
        first: what to send.
        seconds: time for all of it.

    Returns:
        The welcome, and the packets that came in the same message after it.

    Raises:
        AttemptFailed: there was none. If the node told why in an error packet, the ending says so.
    """
    refusal: Error | None = None
    try:
        async with asyncio.timeout(seconds):
            await transport.send(encode_link(first))
            while True:
                message = await transport.receive()
                if isinstance(message, Ending):
                    raise AttemptFailed(message if refusal is None else _refused(refusal, message.code))
                packets = decode_from_server(message)
                for index, packet in enumerate(packets):
                    if isinstance(packet, Welcome):
                        return packet, packets[index + 1 :]
                    if not isinstance(packet, Error):
                        name = type(packet).__name__
                        raise RemoteProtocolError(f"the node began with {name} and not with a welcome")
                    # Its close code comes next and says when to try again.
                    refusal = packet
    except TimeoutError:
        if refusal is not None:
            raise AttemptFailed(_refused(refusal, None)) from None
        raise AttemptFailed(Ending(message=f"no welcome came within {seconds:g} s", hung=True)) from None
    except RemoteProtocolError as error:
        raise AttemptFailed(Ending(message=str(error), code=error.close.code, violation=True)) from None
    except ConnectionError as error:
        raise AttemptFailed(Ending(message=f"the connection was lost during the handshake: {error}")) from None


def _refused(refusal: Error, code: int | None) -> Ending:
    return Ending(
        message=f"the node refused: {refusal.message} ({refusal.code.value})",
        code=code,
        error=refusal.code,
        retry_after=refusal.retry_after,
    )
