"""Units of the Redis adapter that need no Redis."""
