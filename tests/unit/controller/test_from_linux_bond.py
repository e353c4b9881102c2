"""The order in which a bond of Linux changes sides, and the way back from each step that fails.

On a host that is only pretended: what `ip` and `ovs-vsctl` would do is done to values. With a real
kernel: tests/kernel/test_linux_bond.py.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller import from_linux_bond as moving
from controller.text.wording import Refused
from tests.unit.controller.operations.test_linux_bond import ACTIVE_BACKUP, LACP, MAC

ADDRESS, ROUTE = "192.0.2.10/24 scope global", "default via 192.0.2.1"


@dataclass
class Pretended:
    """A host: its devices and what stands on them, and the ports of its bridges."""

    data: dict[str, Any] = field(default_factory=lambda: dict(ACTIVE_BACKUP))
    masters: dict[str, str | None] = field(
        default_factory=lambda: {"eth0": "bond0", "eth1": "bond0"}
    )
    kinds: dict[str, str] = field(default_factory=lambda: {"bond0": "bond", "bond0.20": "vlan"})
    on: dict[str, str] = field(default_factory=lambda: {"bond0.20": "bond0"})
    stands: dict[str, list[str]] = field(default_factory=lambda: {"bond0": [ADDRESS, ROUTE]})
    bridges: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    record: str = ""
    policy: str = ""
    gateways: set[str] = field(default_factory=lambda: {"192.0.2.1"})
    # What fails, by its beginning; once only.
    fails: str = ""
    said: list[str] = field(default_factory=list)

    def run(self, *command: str, stdin: str = "", **_: Any) -> str:
        words = [w for w in command if not w.startswith("--timeout") and w != "--"]
        line = " ".join(words)
        for one in [line, *stdin.splitlines()]:
            if self.fails and one.startswith(self.fails):
                self.fails = ""
                raise Refused(f"{one}: failed")
        match words[0]:
            case "ip" if stdin:
                for one in stdin.splitlines():
                    self.said.append(one)
                    self._ip(one.split())
                return ""
            case "ip":
                return self._shown(words)
            case "ping":
                if words[-1] in self.gateways:
                    return ""
                raise Refused("ping -> an answer")
            case "ovs-vsctl":
                return self._vsctl(words[1:])
        raise Refused(f"{line} -> a command that is pretended")

    def _ip(self, words: list[str]) -> None:
        match words:
            case ["link", "set", member, "nomaster"]:
                self.masters[member] = None
            case ["link", "set", member, "master", bond]:
                assert not any(
                    member in p for ports in self.bridges.values() for p in ports.values()
                )
                self.masters[member] = bond
            case ["link", "del", name]:
                assert name in self.kinds, name
                del self.kinds[name]
                self.stands.pop(name, None)
                self.masters = {m: b if b != name else None for m, b in self.masters.items()}
                self.on.pop(name, None)
            case ["link", "add", "link", device, "name", name, *_]:
                assert device in {*self.kinds, *self.bridges} and name not in self.kinds
                self.kinds[name], self.on[name] = "vlan", device
            case ["link", "add", name, *_]:
                self.kinds[name] = "bond"
            case ["addr", "flush", "dev", device]:
                self.stands[device] = []
            case ["addr" | "route", "replace", *what, "dev", device]:
                assert device in {*self.kinds, *self.bridges}
                stands = self.stands.setdefault(device, [])
                stands += [one for one in [" ".join(what)] if one not in stands]

    def _shown(self, words: list[str]) -> str:
        if words[1] in ("-4", "-6"):
            routes = [s for s in self.stands.get(words[-1], []) if "via" in s and words[1] == "-4"]
            return "\n".join(routes)
        if "address" in words:
            found = [
                s.split()[0].split("/") for s in self.stands.get(words[-1], []) if "via" not in s
            ]
            info = [
                {"family": "inet", "local": a, "prefixlen": int(n), "scope": "global"}
                for a, n in found
            ]
            return json.dumps([{"ifname": words[-1], "addr_info": info}])
        if "dev" in words:
            return json.dumps([{"ifname": words[-1], "flags": ["UP", "LOWER_UP"]}])
        links: list[dict[str, Any]] = [
            {"ifname": m, **({"master": b} if b else {})} for m, b in self.masters.items()
        ]
        for name, kind in self.kinds.items():
            vlan = {"protocol": "802.1Q", "id": 20}
            data = self.data if kind == "bond" else vlan
            link = {"ifname": name, "address": MAC, "mtu": 1500}
            link |= {"link": self.on[name]} if name in self.on else {}
            links.append({**link, "linkinfo": {"info_kind": kind, "info_data": data}})
        return json.dumps([*links, *({"ifname": bridge} for bridge in self.bridges)])

    def _vsctl(self, words: list[str]) -> str:
        line = " ".join(words)
        ids = dict(re.findall(r"--id=(@\w+) (?:create interface name=|get interface )(\S+)", line))
        ports = {port: bridge for bridge, has in self.bridges.items() for port in has}
        match words:
            case ["port-to-br", port]:
                if port not in ports:
                    raise Refused(f"{port} -> a port")
                return ports[port]
            case ["br-exists", bridge]:
                if bridge not in self.bridges:
                    raise Refused(f"{bridge} -> a bridge")
                return ""
            case ["list-ports", bridge]:
                return "\n".join(self.bridges[bridge])
            case ["del-port", bridge, port]:
                del self.bridges[bridge][port]
                return ""
            case ["del-br", bridge]:
                del self.bridges[bridge]
                self.stands.pop(bridge, None)
                return ""
            case ["--if-exists", "get", "bridge", _, "external_ids:ovs-lbt-policy"]:
                return self.policy
            case ["--if-exists", "get", "port", _, key] if key.startswith("external_ids:"):
                return self.record
            case ["--if-exists", "--bare", "get", "port", port, "interfaces"]:
                return f"[{', '.join(self.bridges.get(ports.get(port, ''), {}).get(port, []))}]"
            case ["--bare", "get", "interface", name, "name"]:
                return f'"{name}"'
            case [_, _, _, "list", "interface", _]:
                return "3,up"
            case ["get", "interface", _, "lacp_current"]:
                return "true"
            case _ if "add-br" in words:
                self.bridges[words[words.index("add-br") + 1]] = {}
        if found := re.search(r"create port name=(\S+) interfaces=(\S+)", line):
            bridge = words[-3]
            self.bridges[bridge][found[1]] = [ids[one] for one in found[2].split(",")]
        if found := re.search(r"external_ids:ovs-lbt-linux-bond=(.*)$", line):
            self.record, _ = json.JSONDecoder().raw_decode(found[1])
            self.record = json.dumps(self.record)
        if found := re.search(r"(add|remove) port (\S+) interfaces (@\w+)", line):
            members = self.bridges[ports[found[2]]][found[2]]
            (members.append if found[1] == "add" else members.remove)(ids[found[3]])
        self.said.append(f"vsctl {line}")
        return ""

    def state(self) -> Any:
        """What an operator could compare."""
        return (self.masters, self.kinds, self.on, self.stands.get("bond0"), self.bridges)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    made = Pretended()
    monkeypatch.setattr(moving, "run", made.run)
    monkeypatch.setattr("shutil.which", lambda tool: tool)
    for name in ("GATEWAY_PATIENCE_S", "LINK_PATIENCE_S", "LACP_PATIENCE_S", "CHECK_INTERVAL_S"):
        monkeypatch.setattr(moving, name, 0.0)
    return made


def there(host: Pretended) -> None:
    moving.move(moving.survey("br0", "bond0"), host.said.append)


def position(host: Pretended, begins: str) -> int:
    lines = [f"{line} " for line in host.said]
    return next(number for number, line in enumerate(lines) if line.startswith(begins))


@pytest.mark.parametrize("data", [ACTIVE_BACKUP, LACP])
def test_one_member_after_another_and_addresses_in_between(
    host: Pretended, data: dict[str, Any]
) -> None:
    host.data = dict(data)
    before = json.dumps(host.state(), sort_keys=True)
    there(host)
    first, last = ("eth1", "eth0")
    order = [
        f"link set {first} nomaster",
        "vsctl --id=@i0 create interface",
        "link set bond0 down",
        "addr flush dev bond0",
        "addr replace 192.0.2.10/24",
        "link del bond0 ",
        f"vsctl --id=@i create interface name={last}",
    ]
    if data is ACTIVE_BACKUP:
        places = [position(host, line) for line in order]
        assert places == sorted(places)
    assert {tuple(sorted(members)) for members in host.bridges["br0"].values()} == {
        ("eth0", "eth1")
    }
    assert (host.stands["br0"], host.on["bond0.20"]) == ([ADDRESS, ROUTE], "br0")
    assert "bond0" not in host.kinds
    moving.move_back(moving.survey_back("br0", "bond0"), host.said.append)
    assert json.dumps(host.state(), sort_keys=True) == before


@pytest.mark.parametrize(
    "fails",
    [
        "link set eth1 nomaster",
        "ovs-vsctl --id=@i0",
        "ovs-vsctl --columns=ofport",
        "link del bond0.20",
        "addr flush dev bond0",
        "link set br0 up",
        "addr replace",
        "route replace",
        "link add link br0",
        "link del bond0",
        "ovs-vsctl --id=@i create",
    ],
)
def test_whichever_step_fails_everything_is_as_before(host: Pretended, fails: str) -> None:
    if fails == "link del bond0":
        # Not the VLAN on it.
        host.kinds = {"bond0": "bond"}
        host.on = {}
    before = json.dumps(host.state(), sort_keys=True)
    host.fails = fails
    with pytest.raises(Refused, match="everything was rolled back"):
        there(host)
    assert host.fails == "", "the step was not taken"
    assert json.dumps(host.state(), sort_keys=True) == before


def test_an_option_that_is_not_taken_does_not_keep_the_bond_from_going_back(
    host: Pretended,
) -> None:
    there(host)
    host.fails = "link add bond0 "
    moving.move_back(moving.survey_back("br0", "bond0"), host.said.append)
    made = [
        said for said in host.said if said.startswith("link add bond0 ") and "failed" not in said
    ]
    assert made == [
        f"link add bond0 address {MAC} mtu 1500 type bond mode active-backup miimon 100 updelay 200"
    ]
    assert host.masters == {"eth0": "bond0", "eth1": "bond0"}


def test_a_gateway_that_does_not_answer_any_more_lets_everything_go_back(host: Pretended) -> None:
    survey = moving.survey("br0", "bond0")
    assert survey.answering == ("192.0.2.1",)
    host.gateways = set()
    with pytest.raises(
        Refused, match=r"gateway 192.0.2.1 no longer answers .* everything was rolled back"
    ):
        moving.move(survey, host.said.append)
    assert host.masters == {"eth0": "bond0", "eth1": "bond0"} and host.bridges == {}
    assert host.stands["bond0"] == [ADDRESS, ROUTE]


def test_a_gateway_that_has_not_answered_before_is_not_asked(host: Pretended) -> None:
    host.gateways = set()
    there(host)
    assert host.stands["br0"] == [ADDRESS, ROUTE]


def test_a_bridge_that_is_in_use_is_refused(host: Pretended) -> None:
    host.bridges = {"br0": {"bond1": ["eth2", "eth3"]}}
    with pytest.raises(Refused, match="bridge br0 has bond bond1; choose a bridge without uplinks"):
        there(host)
    host.bridges, host.stands["br0"] = {"br0": {}}, [ADDRESS]
    with pytest.raises(Refused, match=r"br0 has 192.0.2.10/24 .*; remove its addresses and VLANs"):
        there(host)
    host.policy = "adaptive"
    with pytest.raises(Refused, match="bridge br0 is attached; detach it first"):
        there(host)
    host.bridges, host.kinds["br0"] = {}, "bridge"
    with pytest.raises(Refused, match="bridge br0: another device has this name"):
        there(host)


def test_switches_and_peers_hear_where_each_address_is(host: Pretended) -> None:
    host.stands["bond0.20"] = ["198.51.100.1/24 scope global"]
    heard = moving.survey("br0", "bond0").announcements
    assert [frame[12:16].hex() for frame in heard] == [
        "80350001",
        "08060001",
        "81000014",
        "81000014",
    ]
    assert all(frame[6:12].hex(":") == MAC for frame in heard)


def test_each_change_of_the_sending_member_is_announced(
    host: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        moving, "_announce", lambda device, _: host.said.append(f"announce {device}")
    )
    there(host)
    assert host.said.count("announce eth1") == 2
    host.data = host.data | {"primary": "eth0"}
    moving.move_back(moving.survey_back("br0", "bond0"), host.said.append)
    assert host.said.count("announce bond0") == 2
    changes = ("link set eth0 master", "link set bond0 type bond primary")
    last = max(at for at, line in enumerate(host.said) if line.startswith(changes))
    assert "announce bond0" in host.said[last:]


def test_a_bond_that_replaces_none_of_linux_does_not_go_back(host: Pretended) -> None:
    host.bridges = {"br0": {"bond0": ["eth0", "eth1"]}}
    with pytest.raises(Refused, match="no bond bond0 that replaces a Linux bond"):
        moving.survey_back("br0", "bond0")
    host.record = "word"
    with pytest.raises(Refused, match="word; expected the value that attach --from-bond"):
        moving.survey_back("br0", "bond0")
