"""The sessions of a node, and what of them is written to the grid."""
