"""Links to the other nodes over TCP and mutual TLS: implements ``gateway.ports.PeerLinks``.

```text
              acceptor ─┐                          ┌─ link (one to each node): reads, writes, beats
 StreamPeerLinks        ├─ greeting: who are you? ─┤     frames ◀─▶ messages
              dialer  ──┘                          └─ inbox: what has come, for whoever takes events
```
"""

from gateway.adapters.peers.links import LinkContexts, LinkPlace, StreamPeerLinks

__all__ = ["LinkContexts", "LinkPlace", "StreamPeerLinks"]
