"""The systems that are measured: the gateway, its peers, and the floor below them."""
