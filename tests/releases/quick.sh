#!/usr/bin/env bash
# `make test-quick` as somebody runs it who is not root and has nothing but Python: in a root of its own (make
# test-fresh), before anything else is installed.
set -euo pipefail

readonly HOME_THERE=/home/somebody
readonly THERE=$HOME_THERE/ovs-lbt

if ((EUID != 0)); then
    cd "$THERE"
    python3 -m venv .venv
    .venv/bin/pip install --quiet --editable '.[dev]'
    time make test-quick
    exit
fi
type -P ovs-vswitchd || echo "Open vSwitch is not installed"
apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends python3-venv </dev/null >/dev/null
id somebody >/dev/null 2>&1 || useradd --create-home somebody
rm -rf "$THERE"
mkdir "$THERE"
tar -c --exclude=./out --exclude='./.venv*' . | tar -x -C "$THERE"
chown -R somebody: "$THERE"
exec runuser -u somebody -- env HOME="$HOME_THERE" bash "$THERE/tests/releases/quick.sh"
