"""A node among others: lease, takeover, writing sessions again after the grid was unreachable, drain and moves."""
