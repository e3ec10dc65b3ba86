"""What compiled code of all packages is made of: how it is compiled, and how it reads and hashes UTF-8 buffers.

Importing these modules imports numba, which takes most of a second: `tokenmill_core` itself imports none of them.
"""
