"""What a path is: a plain value, a topic with history, or a queue; and within which limits."""
