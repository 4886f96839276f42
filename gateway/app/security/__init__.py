"""Who clients are, what they may do, and who is refused whatever he shows."""
