"""A minimal root of a distribution's release, and programs in it that see nothing else's processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.releases.distributions import DISTRIBUTIONS

RELEASES = tuple(release for one in DISTRIBUTIONS for release in one.releases)
# Not in /root, which nobody else may read: some tests look at it as somebody else.
CHECKOUT = "/srv/ovs-lbt"
# Beyond the minimum: what somebody with a checkout has.
PACKAGES = ("make", "ca-certificates")
# How this machine reaches the network; nothing else of its environment gets in.
PASSED = (
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT"),
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "TERM"),
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOCAL_AUTHORITIES = Path("/usr/local/share/ca-certificates")
# Process 1: it starts a command, reaps whatever ends, and ends as the command does. Perl is all
# that a minimal root has for it.
INIT = (
    "my $p = fork; if (!$p) { exec @ARGV; exit 127 } my $s = 1;"
    " while ((my $w = wait) > 0) { if ($w == $p) { $s = $?; last } }"
    " exit($s & 127 ? 128 + ($s & 127) : $s >> 8)"
)
MOUNTS = """
set -e
# To be seen as a mount by those who change its propagation, as `ip netns exec` does.
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mkdir -p "$1/run/lock"
mkdir -p "$1/var/cache/apt/archives" "$1/root/.cache/pip"
mount --bind "$2/apt" "$1/var/cache/apt/archives"
mount --bind "$2/pip" "$1/root/.cache/pip"
# Programs that enter the mounts of another one, as Mininet's do, are then in this root, too.
mkdir -p "$1/outside"
cd "$1"
shift 2
pivot_root . outside
umount -l /outside
rmdir /outside
exec /usr/bin/perl -e "$INIT" -- "$@"
"""


class Root:
    """A directory with a release in it. `base` is as debootstrap has left it, and is kept."""

    def __init__(self, release: str, place: Path) -> None:
        self.release = release
        self._distribution = next(one for one in DISTRIBUTIONS if release in one.releases)
        self.path = place / release / "root"
        self._base = place / "cache" / release / "base"
        self._cache = place / "cache" / release

    @property
    def made(self) -> bool:
        return (self.path / "etc/os-release").exists()

    def make(self, log: Path) -> None:
        """Make it anew, the checkout in it not included.

        Raises:
            RuntimeError: something failed; the log says what.
        """
        for name in ("apt/partial", "pip"):
            (self._cache / name).mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            if not (self._base / "made").exists():
                shutil.rmtree(self._base, ignore_errors=True)
                archives = self._distribution.archives()
                _do(self._debootstrap(archives), output)
                self._configure(archives)
                (self._base / "made").touch()
            shutil.rmtree(self.path, ignore_errors=True)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _do(["cp", "-a", "--reflink=auto", str(self._base), str(self.path)], output)
            (self.path / "made").unlink()
            authorities = self.path / str(LOCAL_AUTHORITIES).lstrip("/")
            authorities.mkdir(parents=True, exist_ok=True)
            for one in LOCAL_AUTHORITIES.glob("*.crt"):
                shutil.copy(one, authorities)
            apt = "apt-get -q -y -o Dpkg::Use-Pty=0"
            _do(
                self.entering(
                    f"{apt} update && {apt} install --no-install-recommends {' '.join(PACKAGES)}",
                    directory="/",
                ),
                output,
            )

    def copy_in(self, archive: bytes) -> None:
        """Have a checkout in it, from a tar archive."""
        there = self.path / CHECKOUT.lstrip("/")
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", str(there)], input=archive, check=True)

    def packages(self) -> list[Path]:
        """The Debian packages that were built in it."""
        return list((self.path / CHECKOUT.lstrip("/")).glob("out/deb/*.deb"))

    def take_packages(self, packages: Sequence[Path]) -> None:
        """Have these, and no others, beside those that were built in it."""
        there = self.path / CHECKOUT.lstrip("/") / "out/others"
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir(parents=True)
        for package in packages:
            shutil.copy(package, there)

    def entering(self, command: str, directory: str = CHECKOUT) -> list[str]:
        """A bash command in it, in mounts and processes of its own: all end with the command.

        It resolves names as this machine does, even if a package such as systemd-resolved has replaced
        the files for this.
        """
        for name in ("resolv.conf", "hosts"):
            there = self.path / "etc" / name
            there.unlink(missing_ok=True)
            shutil.copyfile(f"/etc/{name}", there)
        environment = [f"{name}={os.environ[name]}" for name in PASSED if name in os.environ]
        environment += [f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8"]
        environment += ["DEBIAN_FRONTEND=noninteractive", f"INIT={INIT}"]
        # Ubuntu's procps would otherwise change the settings of the kernel, which are the machine's.
        environment.append("container=chroot")
        own = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        inside = ["bash", "-c", f"cd {directory} && {{ {command}; }}"]
        return [
            *("env", "-i", *environment, *own, "--propagation", "private"),
            *("bash", "-c", MOUNTS, "bash", str(self.path), str(self._cache), *inside),
        ]

    def _debootstrap(self, archives: Sequence[str]) -> list[str]:
        distribution = self._distribution
        command = ["debootstrap", "--variant=minbase"]
        command.append(f"--components={','.join(distribution.components)}")
        if keyring := distribution.keyring(self._cache):
            command.append(f"--keyring={keyring}")
        command += [self.release, str(self._base), *archives[:1]]
        return [*command, distribution.script] if archives and distribution.script else command

    def _configure(self, archives: Sequence[str]) -> None:
        """Have updates and security fixes in it, too, where the distribution has these."""
        components = " ".join(self._distribution.components)
        lines = [f"deb {archives[0]} {self.release} {components}"] if archives else []
        if archives:
            lines.append(f"deb {archives[0]} {self.release}-updates {components}")
        lines += [f"deb {one} {self.release}-security {components}" for one in archives[1:]]
        if lines:
            (self._base / "etc/apt/sources.list").write_text("".join(f"{one}\n" for one in lines))
        for one in Path("/etc/apt/apt.conf.d").glob("*proxy*"):
            shutil.copy(one, self._base / "etc/apt/apt.conf.d")


def _do(
    command: Sequence[str], output: object, environment: Mapping[str, str] | None = None
) -> None:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed with exit status {done.returncode}")
