"""Formats text for people: columns, bars, colours, tables of bridges, and safe external text.

`show`, `top`, answers and errors use this package. The package imports no other package.
"""
