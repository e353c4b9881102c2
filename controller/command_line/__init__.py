"""The command line: its arguments, and one module for each group of commands.

Modules are imported when a command needs them, so that most commands start fast.
"""
