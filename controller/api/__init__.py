"""Defines what the engine exchanges with other packages: events, commands, history and status.

`events` are the inputs of the engine, `engine_commands` its outputs. `history` and `status` are its
reports about decisions and bridges. This package imports `dataplane`, `config`, `text` and the
policies. All packages that do I/O, and all that import this package, exchange these values.
"""
