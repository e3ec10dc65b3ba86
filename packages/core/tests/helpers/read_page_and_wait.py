"""Read the web page at argv[1], say so, and wait to be killed."""

import sys
import time

from reading import read

from tokenmill_core.readers import Format

assert len(read(sys.argv[1], Format.HTML).texts) == 1
print("read", flush=True)
time.sleep(60)
