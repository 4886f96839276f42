"""What one hostile client can take of a node, authenticated or not: attacks, a witness beside them, and the verdict."""
