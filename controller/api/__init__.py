"""The values between the engine and what surrounds it: events in, commands out, and what it tells.

`events` is what the engine hears and asks for; `history` and `status` are what it says of
decisions and of bridges. It imports `dataplane`, `config`, `text` and the policies; every
room above them, and all that does I/O, speaks by these.
"""
