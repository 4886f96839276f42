"""Predicts what a cluster of any size needs, from costs that the benchmarks have measured on one machine."""
