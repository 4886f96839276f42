"""One outside thing each. Adapters implement ports and do not import one another."""
