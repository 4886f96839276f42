"""What principals may do: permissions, filters, revocations and the roles of the system."""
