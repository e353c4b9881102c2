"""Values that pass between the engine and its surroundings: events, commands, history and status.

`events` has what the engine receives and what it asks for. `history` and `status` have what it
reports about decisions and bridges. This room imports `dataplane`, `config`, `text` and the
policies. All rooms above it, and all that do I/O, exchange these values.
"""
