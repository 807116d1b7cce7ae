"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# How long an example takes is the machine's affair: a busy one must not fail a test.
settings.register_profile("heddle", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("heddle")
