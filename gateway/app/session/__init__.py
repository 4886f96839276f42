"""One session as its node holds it, and the requests of its client."""
