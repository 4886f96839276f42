"""What the gateway's figures are measured against that is no server: bare Redis clients."""
