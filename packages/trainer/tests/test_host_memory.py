import subprocess
import sys

import pytest

COUNT = """
import resource, torch
from tokenmill_trainer.host_memory import keep_freed_memory
torch.set_num_threads(1)
if {keep}:
    assert keep_freed_memory()
torch.zeros(1 << 25)  # the hole it leaves has room for the smaller ones, alignment and all
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(1 << 24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> int:
    command = [sys.executable, "-c", COUNT.format(keep=keep)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_pages_are_used_again_rather_than_made_anew() -> None:
    assert faults(keep=True) < faults(keep=False) / 5
