"""Draws faults by a seed over all folders of `controller/` and `policies/`, and plants them.

A fault replaces one expression. The order in which a folder gives its faults depends on the seed and
the source only: more faults, or spares for those that change no behavior, come after the others.
"""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest
from pathlib import Path

PACKAGES = ("controller", "policies")
NEGATED = "condition negated"
OFF_BY_ONE = "constant off by one"
LEFT_OUT = "call left out"
TIMER = "timer dropped"
WRONG_PORT = "wrong port"
# Names of moments and delays, not of measured times.
TIMER_NAME = re.compile(
    r"(^|_)(after|again|before|cooldown|deadline|due|every|from|grace|held|hold|interval|keep|known"
    r"|lasts|mergeable|next|patience|pause|resumes?|retry|return|soon|timeout|until|wait|within)_s$",
    re.IGNORECASE,
)
PORT_NUMBER = re.compile(r"(^|_)(ofport|in_port|out_port|port_no)$")
PORT_NAME = re.compile(r"(^|_)(home|member|port|target|uplink)$")
# One more of so many has no effect.
LARGE = 10_000


@dataclass(frozen=True)
class Fault:
    """`before`, at `column` of the stripped line, becomes `after`."""

    number: int
    folder: str
    file: str
    line: int
    column: int
    source_line: str
    kind: str
    before: str
    after: str
    # Why it changes no behavior. A spare is planted instead.
    changes_nothing: str = ""


def start_of(fault: Fault, source: bytes) -> int:
    """The first byte of `before`, on the nearest line that reads the same: lines above may be new.

    Raises LookupError if there is none.
    """
    starts = line_starts(source)
    lines = enumerate(source.splitlines(), 1)
    same = [number for number, line in lines if line.strip() == fault.source_line.encode()]
    for number in sorted(same, key=lambda number: abs(number - fault.line)):
        indent = re.match(rb"\s*", source[starts[number - 1] :])
        start = starts[number - 1] + (indent.end() if indent else 0) + fault.column
        if source.startswith(fault.before.encode(), start):
            return start
    raise LookupError(f"{fault.file} has no such line: {fault.source_line}")


def plant(fault: Fault, source: bytes) -> bytes:
    """The file with this fault and no other change."""
    start = start_of(fault, source)
    return source[:start] + fault.after.encode() + source[start + len(fault.before.encode()) :]


def draw(root: Path, seed: int, count: int, spares: int) -> tuple[list[Fault], list[Fault]]:
    """`count` faults, shared among folders by their lines, and so many spares of each folder."""
    lines: Counter[str] = Counter()
    possible: dict[str, list[Fault]] = {}
    for path in sorted(path for name in PACKAGES for path in (root / name).rglob("*.py")):
        file, source = path.relative_to(root), path.read_bytes()
        lines[str(file.parent)] += len(source.splitlines())
        possible.setdefault(str(file.parent), []).extend(faults_of(str(file), source))
    drawn: list[Fault] = []
    more: list[Fault] = []
    for folder, share in _shares(lines, count).items():
        order = _mixed(possible[folder], random.Random(f"{seed} {folder}"))
        drawn += order[:share]
        more += order[share : share + spares]
    numbered = [replace(fault, number=number) for number, fault in enumerate(drawn + more, 1)]
    return numbered[: len(drawn)], numbered[len(drawn) :]


def to_plant(faults: Sequence[Fault], spares: Sequence[Fault]) -> list[Fault]:
    """The faults. For each that changes nothing, the next spare of its folder."""
    left = [spare for spare in spares if not spare.changes_nothing]
    chosen = []
    for fault in faults:
        if fault.changes_nothing:
            of_folder = [spare for spare in left if spare.folder == fault.folder]
            if not of_folder:
                raise LookupError(f"{fault.folder} has no spare left: draw more --spares")
            fault = of_folder[0]
            left.remove(fault)
        chosen.append(fault)
    return chosen


def _shares(lines: Counter[str], count: int) -> dict[str, int]:
    """One for each folder, and the rest by lines, with largest remainders."""
    if count < len(lines):
        raise ValueError(f"{count} faults for {len(lines)} folders")
    exact = {name: 1 + (count - len(lines)) * n / lines.total() for name, n in lines.items()}
    shares = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (shares[name] - exact[name], name))
    for name in by_remainder[: count - sum(shares.values())]:
        shares[name] += 1
    return shares


def _mixed(faults: Sequence[Fault], order: random.Random) -> list[Fault]:
    """In turn one fault of each kind, as long as there are any."""
    by_kind = [[f for f in faults if f.kind == kind] for kind in sorted({f.kind for f in faults})]
    order.shuffle(by_kind)
    for same in by_kind:
        order.shuffle(same)
    return [fault for turn in zip_longest(*by_kind) for fault in turn if fault]


def faults_of(file: str, source: bytes) -> list[Fault]:
    """All faults that this file can have, in its order."""
    starts, found = line_starts(source), {}
    for kind, node, after in _places(ast.parse(source)):
        start, end = span(node, starts)
        line = source[starts[node.lineno - 1] : starts[node.lineno]]
        column = node.col_offset - len(line) + len(line.lstrip())
        before, source_line = source[start:end].decode(), line.strip().decode()
        after = after.replace("{}", before)
        folder = str(Path(file).parent)
        fault = Fault(0, folder, file, node.lineno, column, source_line, kind, before, after)
        found[start, kind, before] = fault
    return [found[place] for place in sorted(found)]


def line_starts(source: bytes) -> list[int]:
    return list(accumulate(map(len, source.splitlines(keepends=True)), initial=0))


def span(node: ast.expr | ast.stmt, starts: Sequence[int]) -> tuple[int, int]:
    """The node's first byte, and the one after its last."""
    end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
    return starts[node.lineno - 1] + node.col_offset, end


def not_run(tree: ast.AST) -> set[ast.AST]:
    """What is not evaluated when the program runs, or has no exact place (in f-strings)."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        roots += getattr(node, "decorator_list", [])
        roots += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        in_main = isinstance(node, ast.If) and "'__name__'" in ast.dump(node.test)
        typing = isinstance(node, ast.If) and "'TYPE_CHECKING'" in ast.dump(node.test)
        if in_main or typing or isinstance(node, ast.JoinedStr | ast.pattern):
            roots.append(node)
    return {node for root in roots if root for node in ast.walk(root)}


def _places(tree: ast.Module) -> Iterator[tuple[str, ast.expr, str]]:
    skipped = not_run(tree)
    for node in (node for node in ast.walk(tree) if node not in skipped):
        for test in _conditions(node):
            yield NEGATED, test, "not ({})"
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                if value < LARGE:
                    yield OFF_BY_ONE, node, repr(round(value + 1, 9))
            # A line of the debug log is not behavior.
            case ast.Expr(ast.Call(func) as call) if getattr(func, "attr", "") != "debug":
                yield LEFT_OUT, call, "pass"
            case ast.Assign([target], value) | ast.AnnAssign(target, _, ast.expr() as value):
                named = target.value if isinstance(target, ast.Subscript) else target
                name = getattr(named, "attr", getattr(named, "id", ""))
                moment = isinstance(
                    value, ast.Attribute | ast.BinOp | ast.Call | ast.Constant | ast.Name
                )
                if TIMER_NAME.search(name) and moment:
                    yield TIMER, value, 'float("inf")'
            case ast.FunctionDef(args=arguments):
                ports = [a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)]
                calls = [n for n in ast.walk(node) if isinstance(n, ast.Call) and n not in skipped]
                yield from _wrong_ports(calls, [name for name in ports if PORT_NAME.search(name)])


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            yield from _operands(test)
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield from _operands(test)
        # Others choose one of two values.
        case ast.Return(ast.BoolOp(values=values)) if any(
            isinstance(v, ast.Compare) for v in values
        ):
            yield from values


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    yield test
    for value in test.values if isinstance(test, ast.BoolOp) else ():
        yield from _operands(value)


def _wrong_ports(
    calls: Sequence[ast.Call], ports: Sequence[str]
) -> Iterator[tuple[str, ast.expr, str]]:
    """A port's number and one more, or another port among the function's parameters."""
    for call in calls:
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            name = getattr(given, "attr", getattr(given, "id", ""))
            if PORT_NUMBER.search(name):
                yield WRONG_PORT, given, "{} + 1"
            elif name in ports and isinstance(given, ast.Name) and len(ports) > 1:
                yield WRONG_PORT, given, ports[ports.index(name) - 1]
