"""Acceptance: several real nodes, a real HAProxy and a real Redis, and the faults that the promises are about."""
