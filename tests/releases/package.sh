#!/usr/bin/env bash
# What an operator does with the package: install, attach, traffic, detach, purge. In a root of its own
# (make test-fresh), as root: it starts an Open vSwitch and removes the package again.
#
#   package.sh PACKAGE.deb     everything; switch and VMs are in a network of their own
# shellcheck disable=SC2317,SC2329 # `check` calls what looks unreachable
set -euo pipefail

readonly BEGUN=${2:-}
status=0

check() { # TEXT COMMAND...
    local text=$1 said
    shift
    if said=$("$@" 2>&1); then
        printf 'PASS  %s\n' "$text"
    else
        printf 'FAIL  %s: %s\n' "$text" "${said//$'\n'/ | }"
        status=1
    fi
}
apt() { apt-get -q -y -o Dpkg::Use-Pty=0 "$@" </dev/null; }
until_true() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || { "$@"; return 1; }
        sleep 0.2
    done
}
is() { [[ $1 == "$2" ]] || { echo "found $1, expected $2"; return 1; }; }
ours() { ovs-ofctl -O OpenFlow13 dump-flows br0 | grep -c 'cookie=0x6c6274' || true; }
carries() {
    local said
    said=$(ip netns exec vm ping -c 50 -i 0.02 -W 1 192.0.2.2) || true
    grep -q ' 0% packet loss' <<<"$said" || { tail -n 3 <<<"$said"; return 1; }
}
bound() { ovs-lbt show br0 --json | grep -q '"connected": true' && ovs-lbt show br0 | grep -w vm0; }
nothing_left() {
    local found
    found=$(ovs-vsctl list bridge; ovs-vsctl list interface; ovs-vsctl list port)
    ! grep -n 'ovs-lbt-' <<<"$found" || return 1
    found=$(find /etc /lib/systemd /opt /usr/bin /usr/local/bin /usr/share /var/lib/dpkg/info \
        -name '*ovs-lbt*' -print)
    is "$found" ""
}

use() {
    ip link set lo up
    ovs-ctl() { /usr/share/openvswitch/scripts/ovs-ctl "$@" 9>&-; }
    ovs-ctl start --system-id=random >/tmp/ovs-ctl.log 2>&1 </dev/null
    ip netns add vm
    ip netns add host
    ip link add vm0 type veth peer name eth0 netns vm
    ip link add peer0 type veth peer name eth0 netns host
    for n in 1 2; do ip link add "up$n" type veth peer name "tor$n"; done
    for name in vm0 peer0 up1 up2 tor1 tor2; do ip link set "$name" up; done
    ip -n vm addr add 192.0.2.1/24 dev eth0
    ip -n host addr add 192.0.2.2/24 dev eth0
    for name in vm host; do ip -n "$name" link set eth0 up; done
    ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev \
        -- add-bond br0 bond0 up1 up2 bond_mode=balance-slb -- add-port br0 vm0
    ovs-vsctl add-br tor -- set bridge tor datapath_type=netdev -- add-port tor peer0 \
        -- add-port tor tor1 -- add-port tor tor2
    check "traffic before" until_true 20 carries
    ovs-lbt run >/tmp/ovs-lbt.log 2>&1 </dev/null &
    check "the service answers" until_true 20 ovs-lbt show
    check "attach" ovs-lbt attach br0
    check "the VM port is bound to an uplink" until_true 10 bound
    check "our flows are there" test "$(ours)" -gt 0
    check "traffic while attached" carries
    check "move" ovs-lbt move vm0 up2
    check "traffic after a move" carries
    check "detach" ovs-lbt detach br0
    check "no flow of ours is left" is "$(ours)" 0
    check "traffic after detach" carries
    check "attach again" ovs-lbt attach br0
    check "purge" apt purge ovs-lbt
    check "no flow of ours is left after purge" is "$(ours)" 0
    check "nothing of ours is left after purge" nothing_left
    # NORMAL knows no address yet, and the upstream switch another way to the VM, for some tenths of a second.
    check "traffic after purge" until_true 10 carries
    ovs-vsctl del-br br0 -- del-br tor
    ovs-ctl stop >/dev/null 2>&1 </dev/null
}

if [[ $BEGUN == use ]]; then
    use
    exit "$status"
fi
apt install iproute2 iputils-ping >/dev/null
check "install" apt install "$(realpath "$1")"
check "the command is the package's" is "$(type -P ovs-lbt)" /usr/bin/ovs-lbt
# What the installation has started is of another network.
/usr/share/openvswitch/scripts/ovs-ctl stop >/dev/null 2>&1 </dev/null || true
unshare --net bash "$0" "$1" use || status=1
exit "$status"
