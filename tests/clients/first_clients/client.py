"""What the first Python client is asked to do; run with its sources, not with today's. See ``test_first_clients``."""

import asyncio
import json
import sys

from gateway.client import connect


def tell(**said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


async def main(url: str) -> None:
    loop = asyncio.get_running_loop()
    session = await connect(url, "alice", properties={"team": "fx"})
    stream = await session.subscribe("a/**")
    recoveries = session.recoveries()

    async def publish(number: int) -> None:
        receipt = await session.publish("a/x", {"n": number})
        update = await anext(stream)
        tell(version=receipt.version, seen=[update.version, update.value])

    await publish(1)
    for number in (2, 3):
        tell(waits=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        recovery = await anext(recoveries)
        tell(outcome=str(recovery.outcome), node=recovery.node)
        if recovery.outcome == "failed_over":
            await anext(stream)  # the current value, before there is a newer one
        await publish(number)
    await session.set_properties({"team": None, "desk": "rates"})
    await session.unsubscribe("a/**")
    refused = None
    try:
        await session.publish("$gateway/x", 1)
    except Exception as error:  # noqa: BLE001 - whatever it is called there
        refused = str(getattr(error, "code", None))
    await session.close()
    tell(properties=dict(session.properties).get("desk"), refused=refused, state=str(session.state.value))


asyncio.run(main(sys.argv[1]))
