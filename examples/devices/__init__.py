"""Devices that say how they are, and for whom the gateway says it when they cannot any more."""
