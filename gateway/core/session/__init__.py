"""The node's half of a session: what it owes its client, and what of that the client has seen. Pure."""
