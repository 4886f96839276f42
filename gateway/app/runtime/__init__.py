"""Time, chance, tasks and numbers: what every part of a node runs on."""
