"""Where sessions take from what they are to be sent besides live updates, when there is room for it."""
