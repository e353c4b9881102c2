"""The reference pages and the settings of the man page, generated from the code.

`python -m tests.reference` writes all of them. `pages` says which ones there are.
"""
