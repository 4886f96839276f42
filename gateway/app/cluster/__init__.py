"""A node among others: lease, takeover, writing sessions again after the grid was away, drain and moves."""
