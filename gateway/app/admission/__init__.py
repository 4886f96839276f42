"""Who may come in, how fast, and what everybody may use."""
