"""Following the documents: what they tell operators to type is typed into a shell.

`br0`, `eth0`, `vnet0` and the like are replaced by what a bed calls them, and nothing else is.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import documents
from tests.documents import Block
from tests.switch.bed import Bed
from tests.switch.service import Service
from tests.switch.waiting import HANG_S


def names(bed: Bed) -> dict[str, str]:
    """What the documents' names stand for."""
    uplinks = {f"eth{number}": uplink.name for number, uplink in enumerate(bed.uplinks)}
    vms = {f"vnet{number}": vm.port for number, vm in enumerate(bed.vms)}
    return {"br0": bed.bridge, "bond0": bed.bond, **uplinks, **vms}


def filled(block: Block, names: Mapping[str, str]) -> str:
    """The text of a block with other names."""
    pattern = rf"(?<![\w-])({'|'.join(map(re.escape, names))})(?![\w-])"
    return re.sub(pattern, lambda found: names[found[0]], block.text)


def typed(
    block: Block,
    service: Service,
    names: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """A block, typed into a shell that ends with the first error; what is said."""
    script = filled(block, names)
    path = f"{service.executable.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={**service.ovs.env, **(variables or {}), "PATH": path},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, f"{block}: {done.stderr.strip()}\n{script}"
    return done.stdout


def follow(label: str, service: Service, bed: Bed) -> Iterator[str]:
    """The blocks of a label, one after another; what each says."""
    for block in documents.labelled(label):
        yield typed(block, service, names(bed))


def bridges(service: Service) -> str:
    return service.ask("show")
