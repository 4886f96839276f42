"""The work that queues and histories are measured by, and the same work for their peer."""
