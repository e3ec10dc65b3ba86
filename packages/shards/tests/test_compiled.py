"""Compiled functions: the same results as Python's, without numba at import, and where no cache can be written."""

import subprocess
import sys

from tokenmill_shards.compiled import compiled


def test_importing_the_package_does_not_import_numba_or_torch() -> None:
    program = "import sys, tokenmill_shards; print(*{'numba', 'torch'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_a_function_whose_cache_has_no_place_is_compiled_all_the_same() -> None:
    """Without a source file there is no place for machine code either."""
    namespace: dict[str, object] = {}
    exec("def triple(number):\n    return 3 * number\n", namespace)
    triple = compiled(namespace["triple"])  # type: ignore[arg-type]
    assert triple(14) == 42
    assert triple.__name__ == "triple"
