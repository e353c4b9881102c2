"""Every command in the documents is one that there is, and what they name exists.

A block of commands is followed on a real switch (tests/switch/test_documents*.py), or consists of
commands that are only parsed, or is in `NOT_RUN`, with the reason. A new one that is none of
these fails.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from controller.cli import arguments
from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_RULE_KEYS
from controller.replay import command as replay
from policies.presets import DEFAULT_PRESET, PRESETS
from tests import documents
from tests.documents import Block
from tests.reference.commands import parsers
from topologies import bench

FOLDER = documents.ROOT / "tests"
SWITCH_TESTS = [
    path
    for names in (
        *("test_documents*.py", "test_ovn_*.py", "ovn/*.py"),
        *("test_hypervisors.py", "test_libvirt.py", "test_proxmox.py", "test_lost_keys.py"),
        *("test_endpoints_in_one_network.py", "test_alertmanager.py"),
    )
    for path in sorted((FOLDER / "switch").glob(names))
]
# Blocks that no test follows, by their first line, and why. What in them is a command of ours is
# parsed all the same.
PACKAGE = "the package's own tests install, upgrade and remove it"
SYSTEMD = "where tests run systemd need not be process 1"
SETUP = "comes before every test; run by hand on a fresh clone"
HOURS = "takes minutes: run by hand, `make demo` and benches by tests/mininet"
POLICY = "test_contributing.py"
TESTS = "runs tests"
OUTPUT = "an example of what is said; the commands in it are parsed"
NOT_RUN = {
    "make deb": PACKAGE,
    "make setup": SETUP,
    "git pull": SETUP,
    "python3 -m venv .venv": SETUP,
    '"""Moves the busiest VM port that helps from the fullest uplink to the emptiest one."""': POLICY,
    "from emptiest import plan": POLICY,
    "[project]": POLICY,
    ".venv/bin/pip install --no-deps -e ../emptiest": POLICY,
    ".venv/bin/python -m pytest tests/unit/controller/load/test_rates.py": TESTS,
    "make test-kernel      # the most important switch tests, at most 60 minutes": TESTS,
    "make format           # ruff fixes and formats": TESTS,
    "systemctl restart openvswitch-switch": SYSTEMD,
    "systemctl restart ovs-lbt": SYSTEMD,
    "# inventory.yml": "for Ansible, which is not installed",
    "ansible-playbook -i inventory.yml rollout.yml --check --limit kvm001.example.net": "the same: tests/unit/packaging/test_ansible.py",
    'NAME    = "production"': "a template for OpenNebula",
    "ovs_extra set bridge ${IFACE} external_ids:ovs-lbt-policy=load-based"
    " external_ids:ovs-lbt-threshold=60": "a line of a file for ifupdown2: test_proxmox.py",
    "ovs-lbt plan --endpoints": "tests/switch/test_ovn_tunnels.py",
    "make demo                                 # moves on a private Open vSwitch: 4 minutes": HOURS,
    "mn --custom topologies/mixed_speed.py --topo mixed_speed,vms=6": "tests/mininet/test_layouts.py",
    ".venv/bin/python -m topologies.examples.compare_two_uplinks two_uplinks.png": "tests/mininet/test_examples.py",
    "docker compose -f dashboards/compose.yml up": "needs Docker; the files by test_provisioning.py",
    "promtool check config dashboards/provisioning/prometheus.yml": "test_provisioning.py",
    "install -D -t /var/lib/grafana/dashboards/ovs-lbt dashboards/*.json": "needs Grafana",
    "sed -i 's|https://ovs-lbt.example/docs|https://wiki.example.org/ovs-lbt|'"
    " /etc/prometheus/rules/ovs-lbt.*.yml": "test_rules.py",
    "[Service]": "for systemd",
    "time_s,host,port,tx_bps,rx_bps,uplink_capacity_bps": "the form of a trace: tests/unit/controller/replay/test_trace.py",
    "$ ovs-lbt replay docs/examples/replay-trace.csv.gz \\": "tests/unit/controller/replay/test_host.py",
    "for flows in 8 32 256; do": "needs a trace of one's own; parsed",
    "$ ovs-lbt plan br0": OUTPUT,
    "$ ovs-lbt explain web-1": OUTPUT,
}
INLINE = re.compile(r"`(ovs-lbt [^`]+)`")
# Parsed by commands of their own.
OTHERS = {
    "replay": replay._parser,
    "bench": bench._parser,
}
PARSER = arguments.parser()
PLACEHOLDERS = {"KEY=VALUE"}

BLOCKS = documents.blocks()


def ours(block: Block) -> list[str]:
    """Commands of ours, in what is typed. A synopsis is not typed."""
    if block.said and "$ " not in block.text:
        return []
    return [command for command in block.commands if command.startswith("ovs-lbt ")]


def written() -> list[str]:
    """All commands of ours, in blocks and in sentences."""
    found = {command for block in BLOCKS for command in ours(block)}
    for document in documents.documents():
        found |= {
            " ".join(c.split()) for c in INLINE.findall((documents.ROOT / document).read_text())
        }
    return sorted(found)


@pytest.mark.parametrize("command", written())
def test_a_command_of_ours_is_one_that_there_is(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(re.sub(r"\$\w+", "1", command.partition(" >")[0]), comments=True)[1:]
    if words[0] in {*parsers(), "revert"} and len(words) == 1:
        return  # a sentence that names the command
    own = words[0] in OTHERS
    parser = OTHERS[words[0]]() if own else PARSER
    try:
        options = parser.parse_args(words[own:])
    except SystemExit as ended:
        if not ended.code:
            return  # `--help` or `--version`
        pytest.fail(capsys.readouterr().err)
    if words[0] == "set":
        check_settings(options.table, options.settings)
    if words[0] == "attach" and options.policy:
        assert options.policy in PRESETS


def check_settings(table: str, settings: list[str]) -> None:
    """That keys and values are some."""
    keys = BRIDGE_KEYS if table == "bridge" else UPLINK_KEYS | VM_RULE_KEYS
    for setting in set(settings) - PLACEHOLDERS:
        key, _, value = setting.partition("=")
        if value or key not in VM_RULE_KEYS:
            keys[key].parse(value)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_followed_or_parsed_or_it_is_said_why_not(block: Block) -> None:
    if block.label is not None or block.said:
        return
    checked = [c for c in block.commands if c.startswith(("ovs-lbt ", "ovs-vsctl "))]
    assert block.first_line in NOT_RUN or checked == block.commands, (
        f"{block}: {block.first_line} -> `<!-- run: NAME -->` before it, or a line in NOT_RUN"
    )


def test_nothing_is_said_of_blocks_that_are_gone() -> None:
    assert NOT_RUN.keys() - {block.first_line for block in BLOCKS if block.label is None} == set()


def test_every_label_is_followed() -> None:
    followed = {
        text for path in SWITCH_TESTS for text in re.findall(r'"([\w-]+)"', path.read_text())
    }
    labels = {block.label for block in BLOCKS if block.label is not None}
    assert labels and labels - followed == set()


def test_every_test_file_that_is_named_exists() -> None:
    # What a run of all tests names may be gone since.
    names = [page for page in documents.pages() if not page.startswith("docs/results/all/")]
    pages = ((documents.ROOT / page).read_text() for page in names)
    texts = " ".join([*pages, *NOT_RUN.values()])
    # Some tests of that run are gone.
    texts = texts.replace(documents.sections("docs/reliability/limits.md")["A whole run"], "")
    named = set(re.findall(r"(?<![\w/.-])((?:\w+/)*test_[a-z\d_]+\.py)", texts))
    tests = [f"/{path.relative_to(documents.ROOT)}" for path in FOLDER.rglob("test_*.py")]
    missing = [name for name in named if not any(test.endswith(f"/{name}") for test in tests)]
    assert len(named) > 80
    assert missing == ["test_emptiest.py"], "not that of an example in CONTRIBUTING.md only"


def test_links_within_the_documents_lead_somewhere() -> None:
    missing = []
    # The links of the notes are those of docs/benchmarks.md, which is made of them.
    for document in sorted({*documents.pages()} - {"docs/results/notes.md"}):
        path = documents.ROOT / document
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text()):
            file, _, anchor = target.partition("#")
            there = (path.parent / file).resolve() if file else path
            if not there.exists() or (anchor and anchor not in anchors(there)):
                missing.append(f"{document}: {target}")
    assert missing == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    bare = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    named = re.findall(r'<a id="([\w-]+)"></a>', page.read_text())
    return {heading.replace(" ", "-") for heading in bare} | {*named}


@pytest.mark.parametrize(
    ("listed", "target"),
    [
        ("DEB_PACKAGES", "make deb"),
        ("DEMO_PACKAGES", "make demo"),
        ("PACKAGES", "make setup"),
        ("VM_PACKAGES", "make test"),
    ],
)
def test_contributing_names_every_package_that_set_up_installs(listed: str, target: str) -> None:
    script = (documents.ROOT / ".ci/setup").read_text()
    entries = script.partition(f"readonly {listed}=(")[2].partition(")")[0].split()
    packages = {entry.partition(":")[0] for entry in entries if not entry.startswith('"$')}
    section = documents.sections("CONTRIBUTING.md")["What set-up installs"]
    row = next(line for line in section.splitlines() if line.startswith(f"| `{target}`"))
    words = re.findall(r"[a-z][\w-]+", row.split("|")[2])
    others = {"the", "packages", "of", "make", "deb", "demo", "setup", "and"}
    assert packages == {*words} - others


def test_every_runbook_names_the_support_bundle() -> None:
    pages = ("docs/runbooks.md", "docs/runbooks-service.md")
    runbooks = {n: text for page in pages for n, text in documents.sections(page).items()}
    assert len(runbooks) > 15
    assert [n for n, text in runbooks.items() if "`ovs-lbt support-bundle`" not in text] == []


@pytest.mark.parametrize(
    ("page", "beginning"), [("docs/policies.md", ""), ("docs/policies/equivalents.md", "| ")]
)
def test_pages_about_policies_name_every_preset(page: str, beginning: str) -> None:
    rows = [
        line
        for line in (documents.ROOT / page).read_text().splitlines()
        if line.startswith(beginning)
    ]
    named = {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)}
    assert PRESETS.keys() <= named


def test_readme_names_the_default_and_no_policy_that_there_is_not() -> None:
    section = documents.sections("README.md")["Policies"]
    named = re.findall(r"^- `([a-z-]+)`", section, re.MULTILINE)
    assert len(named) == 3 and set(named) <= PRESETS.keys()
    assert f"- `{DEFAULT_PRESET}`, the default" in section
