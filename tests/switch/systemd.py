"""systemd as process 1 of a machine of its own: this one's files, with nothing written back to them.

Mounts, processes and control groups are the machine's own. Its network, and the run directory of Open
vSwitch, are those of the test. Of this machine's units, it starts none but the journal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.switch.waiting import wait_until
from topologies.network import processes
from topologies.network.private_ovs import PrivateOvs

CHECKOUT = Path(__file__).parents[2]
PROGRAM = "/lib/systemd/systemd"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A package may be installed.
COMMAND_TIMEOUT_S = 150
TARGET = """
[Unit]
DefaultDependencies=no
Wants=systemd-journald.service
"""
# The control groups are made by whoever is not in them, and so can remove them.
LAYOUT = """
set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/cgroup" "$1/upper" "$1/work" "$1/root"
mount -t cgroup2 cgroup2 "$1/cgroup"
group="$1/cgroup/ovs-lbt-test-$$"
mkdir "$group"
leave() {
    kill -KILL $inside 2>/dev/null || true
    wait
    until find "$group" -depth -type d -exec rmdir {} + 2>/dev/null; do sleep 0.05; done
}
(
    echo $BASHPID >"$group/cgroup.procs"
    exec unshare --pid --cgroup --mount --ipc --uts --fork --kill-child bash -c "$INSIDE" bash "$@"
) &
inside=$!
trap leave EXIT
trap exit TERM
wait
"""
INSIDE = """
set -eu
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs sys sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for own in dev run tmp; do mount -t tmpfs tmpfs "$own"; done
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
# A unit with devices of its own needs these.
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
for shared in "$2" "$3"; do
    [ -e ".$shared" ] || { mkdir -p ".$shared"; mount --bind "$shared" ".$shared"; }
done
rm -rf etc/systemd/system/* lib/systemd/system-generators/* etc/default/ovs-lbt
printf '%s' "$TARGET" >etc/systemd/system/test.target
# This one would empty /tmp when the first unit starts.
ln -s /dev/null etc/systemd/system/systemd-tmpfiles-setup.service
export container=test PATH
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID
exec chroot . "$PROGRAM" --system --unit=test.target --log-target=journal-or-kmsg --show-status=no
"""


class Machine:
    """A context manager; what it was is gone with it."""

    def __init__(self, ovs: PrivateOvs) -> None:
        assert Path(PROGRAM).exists(), f"{PROGRAM} is not installed; run: make setup"
        self._ovs = ovs
        self._place = tempfile.TemporaryDirectory(prefix="ovs-lbt-systemd-")
        self._log = Path(self._place.name).with_suffix(".log")

    def __enter__(self) -> Self:
        given = [self._place.name, str(self._ovs.rundir), str(CHECKOUT)]
        command = ["unshare", "--mount", "--propagation", "private"]
        command += ["bash", "-c", LAYOUT, "bash", *given]
        env = {**os.environ, "INSIDE": INSIDE, "TARGET": TARGET, "PROGRAM": PROGRAM, "PATH": PATH}
        self._outside = processes.start(command, self._log, env)
        try:
            wait_until(self._is_up, "systemd has started", interval_s=0.1)
        except BaseException:
            self.close()
            raise
        self._prepare()
        return self

    def _prepare(self) -> None:
        """What else there is on the machine."""

    def _is_up(self) -> bool:
        assert self._outside.poll() is None, self._log.read_text()
        if not (found := self._process_1()):
            return False
        self.within = [
            *("nsenter", f"--target={found}", "--mount", "--pid", "--cgroup"),
            *("--root", "--wd", "--"),
        ]
        asked = [*self.within, "systemctl", "is-active", "test.target"]
        return not subprocess.run(asked, capture_output=True).returncode

    def _process_1(self) -> int | None:
        """systemd, once it is what runs."""
        pid = self._outside.pid
        for _ in range(2):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if len(children) != 1:
                return None
            pid = int(children[0])
        return pid if Path(f"/proc/{pid}/comm").read_text() == "systemd\n" else None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """With everything in it."""
        processes.end(self._outside, signal.SIGTERM)
        self._log.unlink()
        self._place.cleanup()

    @property
    def pid(self) -> int:
        """Systemd's process, in this machine's numbers."""
        found = self._process_1()
        assert found, self._log.read_text()
        return found

    def path(self, path: str) -> Path:
        """A file of the machine's. Links in it are followed in ours: give the last part as it is."""
        return Path(f"/proc/{self.pid}/root{path}")

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command as root's shell would run it there, whatever comes of it."""
        return subprocess.run(
            [*self.within, *command],
            env={"PATH": PATH, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )

    def do(self, *command: str) -> str:
        """The same, which must be done; its standard output."""
        done = self.run(*command)
        if done.returncode:
            journal = self.run("journalctl", "--no-pager", "-n", "30").stdout
            raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}{journal}")
        return done.stdout
