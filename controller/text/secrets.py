"""Takes secrets out of a text: passwords, keys that are shared beforehand, tokens, private keys.

The names of files with keys stay. A word that only looks like a secret is taken out as well: too little
is worse than too much.
"""

from __future__ import annotations

import re

REMOVED = "[removed]"
# What others call a secret, as a part of a longer name, too: options:psk, AUTH_PASSWORD.
_NAMED = (
    r"pass(?:word|wd|phrase)|secret|token|psk|pre-?shared-?key|credential|community|api[-_]?key"
)
# In KEY=VALUE, KEY: VALUE and "KEY": "VALUE".
_PAIR = re.compile(
    rf"""(?ix) ( [\w.:-]* (?:{_NAMED}) [\w.-]* ["']? \s* [=:] \s* )
    ( "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s,;}}\]"']+ )"""
)
# In ["KEY","VALUE"], as the database prints a map.
_OF_MAP = re.compile(rf"""(?i)(\["[^"]*(?:{_NAMED})[^"]*",\s*)"(?:[^"\\]|\\.)*"(?=\])""")
_PEM = re.compile(r"-----BEGIN [^-]*-----.*?(?:-----END [^-]*-----|\Z)", re.DOTALL)
_IN_URL = re.compile(r"(\w+://)[^/\s:@\"']+:[^/\s@\"']+@")
_HEADER = re.compile(r"(?i)(authorization[\"']?\s*[=:]\s*[\"']?(?:basic|bearer)\s+)\S+")


def without_secrets(text: str) -> str:
    """The text, with `REMOVED` in place of each secret."""
    text = _PEM.sub(REMOVED, text)
    text = _IN_URL.sub(rf"\1{REMOVED}@", text)
    text = _HEADER.sub(rf"\1{REMOVED}", text)
    text = _OF_MAP.sub(rf'\1"{REMOVED}"', text)
    return _PAIR.sub(_replaced, text)


def _replaced(match: re.Match[str]) -> str:
    value = match[2]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match[1]}{quote}{REMOVED}{quote}"
