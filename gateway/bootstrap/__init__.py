"""Puts a node together: the only place that names concrete adapters.

``parameters`` turns settings into numbers, ``files`` reads files that they name, ``parts`` makes single parts of them,
``assembly`` joins those into a node, ``reload`` reads files again, and ``process`` runs a node until it is told to
stop.
"""

from gateway.bootstrap.assembly import Gateway
from gateway.bootstrap.parameters import parameters_of
from gateway.bootstrap.process import run

__all__ = ["Gateway", "parameters_of", "run"]
