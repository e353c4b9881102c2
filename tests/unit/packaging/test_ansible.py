"""The Ansible role: what can be seen of it without running it, and ansible-lint does not look at.

Names of variables, files that are included, and the commands of ovs-lbt: what `ansible-lint` of `make lint`
lets pass. tests/switch/test_fleet.py runs the role, and so finds arguments that a module does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from controller.cli import arguments
from controller.config.keys import BRIDGE_KEYS
from controller.host.sockets import is_loopback

ROOT = Path(__file__).resolve().parents[3] / "controller" / "ansible"
ROLE = ROOT / "roles" / "ovs_lbt"
TASK_FILES = sorted((ROLE / "tasks").glob("*.yml"))
PREFIX = "ansible.builtin."


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def tasks(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        if "block" in item:
            assert item.keys() <= {"name", "block", "rescue", "when"}
            yield from tasks(item["block"])
            yield from tasks(item.get("rescue", []))
        else:
            yield item


ALL = [(path, task) for path in TASK_FILES for task in tasks(load(path))]


def module(task: dict[str, Any]) -> tuple[str, Any]:
    (found,) = [key for key in task if key.startswith(PREFIX)]
    return found.removeprefix(PREFIX), task[found]


def test_every_file_is_included_or_is_the_first() -> None:
    included = {file for _, task in ALL for name, file in [module(task)] if name == "include_tasks"}
    assert {path.name for path in TASK_FILES} == included | {"main.yml"}


def test_every_variable_is_a_default_or_made_before() -> None:
    defaults = set(load(ROLE / "defaults" / "main.yml"))
    made = {task["register"] for _, task in ALL if "register" in task}
    made |= {name for _, task in ALL for name in task.get("vars", {})}
    made |= {
        task["loop_control"]["loop_var"]
        for _, task in ALL
        if "loop_var" in task.get("loop_control", {})
    }
    for _, task in ALL:
        name, arguments = module(task)
        if name == "set_fact":
            made |= set(arguments)
    used = set(re.findall(r"\bovs_lbt_\w+", "".join(path.read_text() for path in TASK_FILES)))
    assert used <= defaults | made, sorted(used - defaults - made)
    assert defaults <= used, "a default that nothing uses"
    assert all(name.startswith("ovs_lbt_") for name in defaults | made)


def test_the_arguments_of_the_role_are_its_defaults() -> None:
    specs = load(ROLE / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = load(ROLE / "defaults" / "main.yml")
    types = {"str": str, "dict": dict, "list": list, "int": int, "bool": bool}
    assert specs.keys() == defaults.keys()
    for name, spec in specs.items():
        assert isinstance(defaults[name], types[spec["type"]]), name
    bridge = set(specs["ovs_lbt_bridges"]["options"]) - {"name", "settings", "observe", "uplinks"}
    assert bridge <= BRIDGE_KEYS.keys()


def test_the_first_batch_is_one_host_and_a_failure_ends_the_rollout() -> None:
    (play,) = load(ROOT / "rollout.yml")
    assert "default([1, " in play["serial"]
    assert play["max_fail_percentage"] == 0
    assert play["roles"] == [{"role": ROLE.name}]


def commands() -> Iterator[list[str]]:
    for _, task in ALL:
        name, arguments = module(task)
        if name == "command" and isinstance(arguments["argv"], list):
            yield arguments["argv"]


def test_the_commands_are_some_that_there_are() -> None:
    ours = [argv[1:] for argv in commands() if argv[0] == "ovs-lbt"]
    assert {argv[0] for argv in ours} == {"confirm", "set", "check", "detach"}
    for argv in ours:
        words = [re.sub(r"\{\{.*?\}\}", "x", word) for word in argv]
        assert arguments.parser().parse_args(words).command == argv[0]


def test_the_gate_is_before_the_end_and_a_failure_goes_back() -> None:
    main = load(ROLE / "tasks" / "main.yml")
    guarded = next(item for item in main if "block" in item)
    assert [module(task)[1] for task in guarded["block"]] == [
        "install.yml",
        "bridge.yml",
        "healthy.yml",
    ]
    assert [module(task)[0] for task in guarded["rescue"]] == ["include_tasks", "fail"]
    assert module(guarded["rescue"][0])[1] == "roll_back.yml"


def test_the_address_that_the_defaults_name_is_one_that_the_service_accepts_without_tls() -> None:
    (address,) = re.findall(
        r'OVS_LBT_METRICS: "(.*?):\d+"', (ROLE / "defaults/main.yml").read_text()
    )
    assert is_loopback(address)
