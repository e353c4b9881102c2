"""Values that pass between the engine and its surroundings: events, commands, history and status.

`events` are the inputs of the engine, `engine_commands` its outputs. `history` and `status` are its
reports about decisions and bridges. This room imports `dataplane`, `config`, `text` and the
policies. All rooms above it, and all that do I/O, exchange these values.
"""
