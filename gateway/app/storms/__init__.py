"""Many clients that come back together: how fast they are greeted, and what they are told about the next time."""

from gateway.app.storms.comebacks import Comebacks
from gateway.app.storms.turnstile import Turn, Turnstile

__all__ = ["Comebacks", "Turn", "Turnstile"]
