"""A node among others: lease, takeover, recovery, drain and moves."""
