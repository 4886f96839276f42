"""Micro-benchmarks of the pure core and the token signer, for use while working; nothing here is a test."""
