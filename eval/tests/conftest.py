"""What holds for all tests."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Tests train small networks for moments: to compile one takes longer, and half as long with fewer optimisations.
quick = "--xla_backend_optimization_level=1 --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quick}"

# How long an example takes is the machine's affair: a busy one must not fail a test.
settings.register_profile("heddle", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("heddle")


@pytest.fixture(scope="session", autouse=True)
def heddle(tmp_path_factory):
    """Give the binary that the tests of the whole project use, or else build one, for imports of captures."""
    binary = os.environ.get("HEDDLE_TEST_BINARY")
    if not binary:
        binary = str(tmp_path_factory.mktemp("bin") / "heddle")
        root = Path(__file__).parents[2]
        subprocess.run(["go", "build", "-trimpath", "-o", binary, "./cmd/heddle"], cwd=root, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEDDLE_BINARY", binary)
        yield
