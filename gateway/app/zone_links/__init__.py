"""Links between clusters: carriers that send what crosses, and receivers that take it (P18)."""
