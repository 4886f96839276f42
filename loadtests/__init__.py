"""Load tests with locust; see README.md."""
