"""Formats text for people: columns, bars, colours, tables of bridges, and safe external text.

`show`, `top`, answers and errors use this package. It is independent of teaming, and imports no other one.
"""
