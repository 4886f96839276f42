"""What a node knows of zones, and what its cluster tells of itself there (P18)."""
