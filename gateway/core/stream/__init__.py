"""Reliable packets in both directions: ids, acknowledgements, resend buffers and the session machine."""
