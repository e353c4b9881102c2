"""Units with rules, said in few words."""

from __future__ import annotations

from dataclasses import fields, replace

from policies.model import Rules, Unit

OF_RULES = {field.name for field in fields(Rules)}


def changed(unit: Unit, **values: object) -> Unit:
    """The same unit with these values, of its own fields and of its rules'."""
    ruled = {name: value for name, value in values.items() if name in OF_RULES}
    own = {name: value for name, value in values.items() if name not in OF_RULES}
    rules = replace(unit.rules, **ruled)  # type: ignore[arg-type]
    return replace(unit, rules=rules, **own)  # type: ignore[arg-type]
