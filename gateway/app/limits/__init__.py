"""What one address, one principal and the node as a whole may use, and what is said to whoever wants more.

| limited | by address | by principal | of the node |
| --- | --- | --- | --- |
| connections, handshakes | HTTP 429 before the handshake | error packet and close 4105 at hello | HTTP 503 before it |
| packets, published bytes | reading pauses, a notice says why | likewise | likewise |
| selections, new topics | | error in the reply | error in the reply |

A principal is known only after its first packet, so nothing of it can be refused before. Nobody is refused a session
that it has already: what a principal holds is counted when it comes back, and limits what it may open anew.

Where no limit is set nothing is counted, and what is left is a look at an attribute.
"""

from gateway.app.limits.addresses import AddressVisit, account_key
from gateway.app.limits.limits import MOST_ACCOUNTS, Limits
from gateway.app.limits.meter import CHARGED_TOGETHER, Meter

__all__ = ["CHARGED_TOGETHER", "MOST_ACCOUNTS", "AddressVisit", "Limits", "Meter", "account_key"]
