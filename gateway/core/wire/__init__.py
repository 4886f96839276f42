"""Packets and their bytes: what the protocol says, and nothing about order or loss."""
