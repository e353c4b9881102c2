"""All goldens: the name of each, and what makes its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from controller.api.commands import BY_NAME
from tests.goldens import edges, scenarios
from tests.goldens.rendering import told
from tests.goldens.steps import Played

Made = Callable[[], Iterable[str]]
# Of so many configurations, the flows and groups are in one golden.
IN_ONE = 25
WRONG = (
    *("--version", "nothing", "show a b", "move vnet0", "set bridge br0", "set port br0 a=b"),
    *("attach", "set bridge br0 threshold", "set bridge br0 threshold=5 threshold=6"),
    *("history --last x", "top --interval 0", "detach br0 --rollback-after 1"),
    *("attach br0 --from-bond b --rollback-after 60", "rescue", "check --uplink a"),
    *("completion bash", "completion zsh", "completion fish", "-t a/b show", "show"),
    *("run --metrics x", "check", "run --listen x", "run --ovsdb x", "plan --endpoints"),
    *("rescue br0", "history", "replay x", "replay", "bench nothing", "confirm br0"),
    *("apply --json", "top --once", "plan br0 --endpoints"),
)
RECORDED = {
    "load-based": ("load-based", 36, {}),
    "load-based-quick": ("load-based", 16, {"window-s": "10", "threshold": "60"}),
    "adaptive": ("adaptive", 16, {}),
    "adaptive-of-three": ("adaptive", 10, {"threshold": "60"}),
    "dynamic": ("dynamic", 16, {}),
    "slb": ("slb", 10, {}),
    "set": ("set", 8, {}),
    "originating-port": ("originating-port", 20, {}),
}


def families() -> dict[str, Made]:
    found: dict[str, Made] = {}
    for name, text in {**scenarios.SCENARIOS, **scenarios.lives()}.items():
        found[f"engine-{name}"] = partial(_played, text)
    drawn = [*scenarios.configurations().items()]
    for first in range(0, len(drawn), IN_ONE):
        found[f"pipelines-{first:03}"] = partial(_pipelines, drawn[first : first + IN_ONE])
    found["rescue"] = edges.rescued
    found["upstream"] = edges.upstream
    found["support-bundle"] = edges.bundled
    found["help"] = _help
    for name, (policy, samples, settings) in RECORDED.items():
        found[f"recorded-{name}"] = partial(edges.replayed, policy, samples, **settings)
    return found


def _played(text: str) -> Iterable[str]:
    return Played(text).play()


def _pipelines(drawn: list[tuple[str, str]]) -> Iterator[str]:
    """What is installed once a bridge of each configuration is in service."""
    for number, team in drawn:
        played = Played(team)
        played.quiet = True
        played.play()
        yield f"== {number} {team}"
        switch = played.switch
        # Those that a bridge of observe mode, or of an invalid configuration, has nothing of.
        yield from sorted(told(group) for group in switch.groups.values())
        yield from sorted(told(flow) for flow in switch.flows.values())
        yield f"errors {told(played.errors())}"


def _help() -> Iterator[str]:
    yield from edges.helped(["--help", *(f"{name} --help" for name in BY_NAME), *WRONG])


def text_of(make: Made) -> str:
    """The lines of a golden."""
    return "".join(f"{line}\n" for line in make())
