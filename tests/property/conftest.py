"""How properties are tried."""

from hypothesis import HealthCheck, settings

# How long one example takes says nothing on a machine that runs other tests as well, and must not fail a property.
settings.register_profile("gateway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gateway")
