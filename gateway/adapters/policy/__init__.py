"""Policies: who may do what, read from a file."""

from gateway.adapters.policy.policy_file import PolicyFileError, PolicyProblem, read_policy

__all__ = ["PolicyFileError", "PolicyProblem", "read_policy"]
