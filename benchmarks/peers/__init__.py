"""The server programs of the peers that are measured beside the gateway; README.md says how they are set up."""
