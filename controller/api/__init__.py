"""Values that pass between the engine and its surroundings: events, commands, history and status.

`events` are the inputs of the engine, `engine_commands` its outputs. `history` and `status` are its
reports about decisions and bridges. This package imports `dataplane`, `config`, `text` and the
policies. The packages above it, and all packages that do I/O, exchange these values.
"""
