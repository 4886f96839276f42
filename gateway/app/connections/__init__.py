"""From an accepted connection to a session: first packet, hello, resume, conversation."""
