"""A Ray cluster on this machine: prints its address, and ends with its standard input."""

import sys

import ray

context = ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
print(context.address_info["address"], flush=True)
sys.stdin.read()
