"""Parts of the gateway against the real things they talk to."""
