"""What one hostile client, account or stranger can take of a node: attacks, a witness beside them, and the verdict."""
