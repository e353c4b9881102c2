"""The distributions of which minimal roots are made: their releases, archives and keys."""

from __future__ import annotations

import hashlib
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Package:
    """A package with the keys of an archive: its address, its SHA-256, and the file with the keys."""

    address: str
    sha256: str
    file: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution with Debian's packages.

    `name` is its origin, as apt has it. `servers`: its archive and that of its security fixes, for a
    machine that has another distribution; nothing if debootstrap knows better. `script` is
    debootstrap's, which may be older than the releases. `keys`: where machines of another
    distribution find those of its archive.
    """

    name: str
    releases: tuple[str, ...]
    components: tuple[str, ...]
    servers: tuple[str, ...] = ()
    script: str = ""
    keys: Package | None = None

    def archives(self) -> list[str]:
        """Its archive, then that of security fixes: as this machine's apt has them, or else `servers`."""
        form = "$(REPO_URI) $(CODENAME) $(ORIGIN)"
        asked = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
        done = subprocess.run(asked, capture_output=True, text=True)
        found: dict[str, str] = {}
        for line in done.stdout.splitlines():
            uri, codename, origin = [*line.split(maxsplit=2), "", ""][:3]
            if origin == self.name:
                found.setdefault("security" if codename.endswith("-security") else "main", uri)
        here = [found[name] for name in ("main", "security") if name in found and "main" in found]
        return here or list(self.servers)

    def keyring(self, cache: Path) -> Path | None:
        """The keys of its archive; None if debootstrap finds them itself.

        Raises:
            RuntimeError: they are not on this machine, and could not be downloaded.
        """
        if self.keys is None or (here := Path("/", self.keys.file)).exists():
            return None if self.keys is None else here
        try:
            with urllib.request.urlopen(self.keys.address, timeout=60) as answer:
                package: bytes = answer.read()
        except OSError as error:
            raise RuntimeError(
                f"the keys of {self.name} cannot be downloaded: {self.keys.address}: {error}"
            ) from error
        found = hashlib.sha256(package).hexdigest()
        if found != self.keys.sha256:
            expected = f"expected {self.keys.sha256}"
            raise RuntimeError(f"the SHA-256 of {self.keys.address} is {found}; {expected}")
        (cache / "keys.deb").write_bytes(package)
        subprocess.run(["dpkg-deb", "-x", cache / "keys.deb", cache / "keys"], check=True)
        return cache / "keys" / self.keys.file


DISTRIBUTIONS = (
    Distribution("Debian", ("bookworm", "trixie"), ("main",)),
    Distribution(
        "Ubuntu",
        ("noble", "resolute"),
        ("main", "universe"),
        ("http://archive.ubuntu.com/ubuntu", "http://security.ubuntu.com/ubuntu"),
        "gutsy",
        Package(
            "http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/"
            "ubuntu-keyring_2023.11.28.1_all.deb",
            "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
            "usr/share/keyrings/ubuntu-archive-keyring.gpg",
        ),
    ),
)
