"""The load generator: C sources, and the driver that compiles and runs them."""
