"""What clients missed while they were away, sent to them anew after a failover (P13, protocol 10.6)."""
