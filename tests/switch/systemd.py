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

from tests.switch.waiting import HANG_S, wait_until
from topologies.network import processes
from topologies.network.private_ovs import PrivateOvs

CHECKOUT = Path(__file__).parents[2]
PROGRAM = "/lib/systemd/systemd"
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
export container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
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

    def __enter__(self) -> Machine:
        given = [self._place.name, str(self._ovs.rundir), str(CHECKOUT)]
        command = ["unshare", "--mount", "--propagation", "private"]
        command += ["bash", "-c", LAYOUT, "bash", *given]
        env = {**os.environ, "INSIDE": INSIDE, "TARGET": TARGET, "PROGRAM": PROGRAM}
        self._outside = processes.start(command, self._log, env)
        try:
            wait_until(self._is_up, "systemd has started", interval_s=0.1)
        except BaseException:
            self.close()
            raise
        return self

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

    def path(self, path: str) -> Path:
        """A file of the machine's."""
        return Path(f"/proc/{self._process_1()}/root{path}")

    def do(self, *command: str) -> str:
        """A command there, which must be done; what it says."""
        done = subprocess.run(
            [*self.within, *command],
            env=self._ovs.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
        return done.stdout
