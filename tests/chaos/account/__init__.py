"""The account: what clients were told and what Redis held, judged by the promises. Pure."""
