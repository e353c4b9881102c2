"""The scenarios: by name, a team in words and what happens to it. `steps` says what the words mean."""

from __future__ import annotations

import random

# What uplinks, VM ports and switches go through in any team.
LIFE = """ run 3 | load vnet0 3e8 | load vnet1 5e8 | load vnet2 4e8 | run 40 | look
    | down eth1 | run 8 | up eth1 | run 50 | add vnet9 19 | run 3 | del vnet1 | run 3
    | gone | run 2 | back | run 3 | cli move vnet2 eth2 | run 5 | look"""
PATHS = "path-check=on path-check-targets=192.0.2.1"

SCENARIOS = {
    # ---- policies, each on a bond
    "originating-port": f"bond policy=originating-port | {LIFE}",
    "load-based": f"bond policy=load-based window-s=10 | {LIFE}",
    "source-mac": f"bond policy=source-mac vms=5 | {LIFE}",
    "slb": f"bond policy=slb uplinks=3 | spread vnet0 5 | spread vnet1 9 | {LIFE}",
    "address-hash": f"bond policy=address-hash | spread vnet0 5 | {LIFE}",
    "dynamic": f"bond policy=dynamic uplinks=3 | spread vnet0 5 | spread vnet1 8 | {LIFE}",
    "set": f"bond policy=set | spread vnet0 5 | spread vnet2 8 | {LIFE}",
    "set-port": f"bond policy=set-port vms=6 | {LIFE}",
    "explicit": f"bond policy=explicit uplinks=3 eth3.role=standby | {LIFE}",
    "ip-hash": f"static policy=ip-hash | spread vnet0 5 | {LIFE}",
    "adaptive": """bond policy=adaptive | run 3 | load vnet0 3e8 | load vnet1 5e8 | load vnet2 4e8
        | run 5 | load vnet3 6e8 | run 3 | look | down eth1 | run 3 | up eth1 | run 47""",
    # ---- kinds of teams
    "plain": f"plain policy=load-based window-s=5 uplinks=3 | {LIFE}",
    "static": f"static policy=load-based window-s=5 | {LIFE}",
    "lacp": """lacp policy=load-based | run 5 | set eth1@lacp_current=False | silent eth1 | run 5
        | look | set eth1@lacp_current=True | up eth1 | run 60 | look""",
    "lacp-fallback": """lacp-fallback policy=address-hash | run 5
        | set eth1@lacp_current=False eth2@lacp_current=False | run 5 | look
        | set eth1@lacp_current=True eth2@lacp_current=True | run 10 | look""",
    "active-backup": """backup policy=load-based | run 3 | look | down eth2 | run 5
        | set bond0:active_mac='02:00:00:00:01:01' | run 5 | up eth2 | run 60 | look""",
    "teaming-keys": """bond policy=ip-hash teaming=static | run 3 | set teaming=lacp | run 3
        | set teaming=switch-independent | run 3 | look | set policy=source-mac | run 3""",
    # ---- roles, links and failback
    "standby": """plain policy=load-based uplinks=3 eth3.role=standby failback-delay-s=5 | run 5
        | down eth1 | run 3 | down eth2 | run 3 | look | up eth1 | run 8 | up eth2 | run 8
        | cli set interface eth3 role=active | run 5 | cli set interface eth1 role=unused | run 5
        | cli set interface eth2 role=unused eth2 | cli set interface eth2 role=drained | look""",
    "failback-never": """bond policy=originating-port failback-delay-s=never | run 3 | down eth1
        | run 3 | up eth1 | run 60 | down eth2 | run 3 | up eth2 | run 3 | look""",
    "failback-flaps": """bond policy=originating-port failback-delay-s=10 | run 3 | down eth1 | run 1
        | up eth1 | run 4 | down eth1 | run 1 | up eth1 | run 9 | look | run 3 | down eth1 | down eth2
        | run 3 | look | up eth2 | run 1 | up eth1 | run 12""",
    "uplinks-come-and-go": """bond policy=load-based window-s=5 | run 3 | join eth3 3 | run 10
        | leave eth1 | run 5 | look | leave eth2 | run 3 | join eth1 1 | run 50 | up eth3 1e10 | run 5
        | cli set interface eth3 capacity-mbps=500 | load vnet0 9e8 | run 20 | look""",
    "drain": """bond policy=load-based uplinks=3 | run 5 | cli drain eth1 | run 3 | look | cli drain eth1
        | cli drain eth9 | cli undrain eth2 | cli undrain eth1 | run 3 | down eth2 | down eth3
        | cli drain eth1 | up eth2 | hold | cli drain eth1 | answer | run 30 | look""",
    # ---- VM ports and their rules
    "rules": """bond policy=load-based window-s=5 uplinks=3 vms=8 vnet0.affinity=a vnet1.affinity=a
        vnet2.anti-affinity=b vnet3.anti-affinity=b vnet4.prefer=eth3,!eth1 vnet5.allow=eth2
        vnet6.pin=eth1 vnet7.exclude=true | run 10 | look | down eth2 | run 5 | look | up eth2 | run 50
        | load vnet0 6e8 | load vnet6 6e8 | run 20 | cli explain vnet5 | cli explain vnet6
        | cli explain vnet0 | cli explain vnet3 | cli explain vnet7
        | cli set interface vnet4 affinity=a prefer= | run 10 | cli unpin vnet6 | cli pin vnet0 eth3
        | run 10 | cli pin vnet5 eth1 | cli move vnet6 eth9 | look""",
    "rules-of-vms": """bond policy=load-based vnet0!vm-id=web vnet0!attached-mac=52:54:00:00:00:0a
        vnet1!iface-id=db vnet1!attached-mac=52:54:00:00:00:0b vm-web-pin=eth2 vm-db-shares=80
        | run 5 | look | del vnet0 | run 3 | add vnet0 30 | set vnet0!vm-id=web | run 3 | cli unpin web
        | cli explain web | cli set interface web prefer=eth1 | cli set interface gone exclude=true
        | run 3 | look""",
    "reservations": """bond policy=load-based window-s=5 vms=6 vnet0.reserve-mbps=600 vnet1.reserve-mbps=500
        vnet2.reserve-mbps=300 vnet3.limit-mbps=100 vnet4.shares=80 | run 10 | look | drops eth1 11 7
        | load vnet0 7e8 | run 10 | cli set interface vnet3 reserve-mbps=900 | run 5 | down eth1 | run 5
        | look | up eth1 | run 50 | look""",
    "queues": """bond policy=originating-port vnet0.shares=70 vnet1.limit-mbps=200 | queue eth1 htb | run 5
        | look | cli set interface eth1 qdisc=replace | run 5 | drops eth2 10 5 | run 70 | look
        | cli set interface vnet0 shares= | cli set interface vnet1 limit-mbps= | run 5 | look""",
    "move-and-pin": """bond policy=originating-port | run 3 | cli move vnet0 eth2 | run 1
        | cli move vnet0 eth2 | cli move vnet9 eth1 | cli pin vnet1 eth1 | cli move vnet1 eth2
        | cli unpin vnet1 | cli unpin vnet1 | down eth2 | cli move vnet1 eth2 | refuse write
        | cli pin vnet2 eth1 | run 50 | gone | cli move vnet0 eth1 | back | run 3 | look""",
    "ports-come-and-go": """bond policy=load-based vms=3 | run 3 | add vnet5 15 | run 1 | renumber vnet1 21
        | run 2 | del vnet5 | add vnet5 15 | run 2 | set vnet2:tag=7 | run 2 | set vnet2:vlan_mode='trunk'
        | set vnet2:trunks=(7,8) | run 2 | set vnet0@ofport=None | run 2 | set vnet0@ofport=10 | run 2
        | from-normal 16 52:54:00:00:00:77 | add vnet6 16 | run 3 | look""",
    "policies-of-ports": """bond policy=load-based vnet1.policy=adaptive vnet2.policy=address-hash
        vnet3.policy=explicit | spread vnet2 4 | load vnet1 7e8 | run 12 | look
        | cli set interface vnet1 policy=slb | run 5 | set policy=dynamic | run 8 | look""",
    "addresses-behind": """bond policy=load-based window-s=5 vnet0.unit=source-mac
        | behind vnet0 52:54:00:00:01:01 0 4e8 | behind vnet0 52:54:00:00:01:02 0 3e8
        | behind vnet0 52:54:00:00:01:03 7 3e8 | run 40 | look
        | cli explain vnet0/52:54:00:00:01:01 | cli move vnet0/52:54:00:00:01:02 eth2
        | cli pin vnet0/52:54:00:00:01:02 eth1 | elsewhere 52:54:00:00:01:03 7 | run 30 | unlearn
        | run 320 | look""",
    "addresses-adaptive": """plain policy=adaptive patch-unit=source-mac vnet1@kind='patch' vnet1@peer='p'
        | behind vnet1 52:54:00:00:01:01 0 4e8 | behind vnet1 52:54:00:00:01:02 0 5e8
        | behind vnet1 52:54:00:00:01:03 0 3e8 | run 6 | look | down eth1 | run 3""",
    "guests": """bond policy=load-based vnet1@kind='patch' vnet1@peer='vnet0-br-int' patch-unit=source-mac
        | other br-int plain unattached uplinks=0 vms=3 vnet0-br-int@kind='patch' vnet0-br-int@peer='vnet1'
        vnet1-br-int!iface-id=web vnet1-br-int!attached-mac=52:54:00:00:01:01
        vnet2-br-int!vm-id=db vnet2-br-int!attached-mac=52:54:00:00:01:02
        | behind vnet1 52:54:00:00:01:01 0 4e8 | behind vnet1 52:54:00:00:01:02 0 3e8 | run 8
        | cli pin vnet1/52:54:00:00:01:01 eth2 | cli explain web | run 5 | look""",
    "attached-macs": """plain policy=load-based vnet0!attached-mac=52:54:00:00:00:0a
        vnet1!attached-mac=52:54:00:00:00:0b vnet1.forged-transmits=accept vnet2!attached-mac=nonsense
        | run 3 | learn vnet1 52:54:00:00:00:55 0 | run 3 | look
        | cli set interface vnet0 forged-transmits=accept | run 3""",
    "vlans": """plain policy=load-based vnet0:tag=7 vnet1:vlan_mode='native-untagged' vnet1:tag=7
        vnet1:trunks=(7,20) vnet2:vlan_mode='native-tagged' vnet2:tag=20 vnet3:trunks=(7,9)
        eth2:vlan_mode='trunk' eth2:trunks=(7,) :flood_vlans=(9,) | run 5 | look | down eth1 | run 5
        | set eth2:trunks=(7,20) | run 3 | set vnet0:tag=30 vnet0.allow=eth2 | run 3 | look""",
    # ---- adaptive, splits, offload, hashes
    "splits": """bond policy=adaptive uplinks=3 | spread vnet0 12 | load vnet1 2e8 | run 3 | load vnet0 1.6e9
        | run 5 | look | cli explain vnet0 | down eth2 | run 2 | up eth2 | run 2 | load vnet0 1e8 | run 20
        | look""",
    "adaptive-waves": """bond policy=adaptive vms=6 window-s=5 threshold=60 | wave vnet0 8e8 2
        | wave vnet1 6e8 3 | wave vnet2 5e8 1.5 | run 16 | look | restart | run 6 | look""",
    "counted-late": """bond policy=adaptive :hw_offload=True | late 4 | load vnet0 4e8 | load vnet1 3e8
        | run 13 | load vnet2 9e8 | run 9 | look | set policy=load-based window-s=5 | run 30 | look""",
    "adaptive-budget": """plain policy=adaptive poll-interval-ms=200 vms=6 vnet5.exclude=true
        | wave vnet0 9e8 7 | wave vnet1 8e8 5 | wave vnet2 7e8 11 | run 60 | look""",
    "unrelieved": """bond policy=load-based window-s=5 | load vnet0 9.8e8 | load vnet1 9.8e8 | run 20 | look
        | load vnet2 9e8 | run 20 | cli explain vnet2 | load vnet0 1e8 | run 20 | look""",
    "connection-hash": """bond policy=address-hash connection-hash=dp_hash | spread vnet0 4 | run 5 | look
        | refuse select no-room | set connection-hash=auto | run 70 | look | accept | gone | back | run 5
        | set connection-hash=multipath | run 5 | look""",
    "offload": """bond policy=dynamic connection-hash=auto :hw_offload=True :in_userspace=False
        eth1@offloads=True eth1@driver='mlx5_core' vnet0@represents=True vnet0@driver='mlx5e_rep' | run 5
        | look | set :tc_policy=skip_sw | run 3 | set :in_userspace=True eth1@kind='dpdk' | run 3 | look""",
    "no-flood": """bond policy=load-based | run 5 | add vnet4 14 | run 3 | refuse flags no-such | add vnet5 15
        | run 20 | look | accept | run 70 | gone | back | run 5 | del vnet4 | run 5
        | set no-flood-before=vnet0 | restart | run 5 | cli detach br0""",
    "inbound": """bond policy=originating-port | inbound vnet0 5e7 eth1 | run 5 | cli move vnet0 eth2
        | run 12 | inbound vnet0 5e7 eth2 | run 5 | cli move vnet0 eth1 | inbound vnet0 5e7 eth1 | run 20
        | look""",
    "receiving": """bond policy=load-based window-s=5 uplinks=3 | load eth1 3e8 | inbound vnet0 9e8 eth1
        | inbound vnet2 4e8 eth2 | run 30 | look""",
    # ---- tunnels
    "endpoints": """bond policy=dynamic vnet0@mac='02:00:00:00:00:01' | addresses vnet0=192.0.2.1,fd00::1
        | spread vnet0 9 | load vnet0 9e8 | other br-int plain unattached uplinks=0 vms=1
        vnet0-br-int@kind='geneve' vnet0-br-int@tunnel=192.0.2.1,vnet0,192.0.2.9 | run 8 | look | cli explain vnet0
        | down eth1 | run 5 | up eth1 | run 50 | addresses vnet1=192.0.2.1 | run 5 | look
        | cli detach br0 | run 20""",
    "ovn": """plain policy=adaptive vnet0@mac='02:00:00:00:00:01' :in_userspace=True | ovn 192.0.2.1
        | addresses vnet0=192.0.2.1 | spread vnet0 8 | run 2 | load vnet0 1.5e9 | run 4 | look
        | restart | run 3 | remove-bridge br0 | run 3""",
    # ---- path checks
    "path-checks": f"""plain policy=originating-port uplinks=3 {PATHS} | run 4 | look | cut 2 | run 4 | look
        | cut 2 3 | run 4 | cut | run 20 | look | cli explain vnet1""",
    "path-checks-of-two": f"""bond policy=load-based {PATHS} | run 3 | cut 1 | run 5 | look | targets no
        | run 5 | cut | targets yes | run 15 | look""",
    "path-checks-vlans": """plain policy=load-based uplinks=3 path-check=on eth1@mtu=9000 eth2@mtu=9000
        eth3@mtu=9000 vnet0:tag=7 vnet1:tag=8 | run 5 | cut 3 | run 6 | look | cut | down eth1 | run 3
        | set path-check=off | run 3 | look""",
    # ---- switches, answers and errors
    "reconnects": """bond policy=load-based window-s=5 | run 3 | forget | run 3 | spoil | run 70 | gone
        | run 100 | look | down eth1 | back | run 5 | hold | gone | back | answer | run 5 | look""",
    "refusals": """bond policy=load-based | refuse bundle no-room | run 5 | cli move vnet0 eth2
        | refuse bundle table-full | cli move vnet1 eth2 | run 5 | look | refuse bundle again
        | down eth1 | run 40 | refuse encoding | cli move vnet0 eth1 | run 20 | look | accept | run 80
        | look | hear failed | run 70 | look""",
    "late-answers": """bond policy=load-based window-s=5 | run 3 | hold | cli move vnet0 eth2 | run 8
        | answer | run 3 | hold | down eth1 | run 8 | up eth1 | answer | run 60 | load vnet0 9e8
        | load vnet1 9e8 | run 4 | hold | run 12 | answer | run 5 | look""",
    "foreign-flows": """plain policy=load-based | run 3 | spoil | run 70 | look | forget | run 3 | look""",
    # ---- configurations
    "invalid-keys": """bond policy=load-based | run 3 | set policy=nonsense threshold=5 window-s=x
        vnet0.pin=eth9 vnet1.shares=0 eth1.role=boss mode=perhaps | run 3 | look
        | set policy=adaptive uplinks=eth1,eth7 teaming=static | run 3 | look | set uplinks= teaming=
        policy=load-based threshold= window-s= mode= vnet0.pin= vnet1.shares= eth1.role= | run 5
        | set policy=set eth1.capacity-mbps=100 | run 5 | look | set policy=ip-hash | run 3 | look
        | cli set bridge br0 threshold=abc | cli set bridge br0 nonsense=1 | cli set bridge br9 mode=observe
        | cli set interface vnet0 pin=eth9 | cli set bridge br0 threshold=80 | run 3""",
    "set-keys": """bond policy=load-based | run 3 | cli set bridge br0 threshold=50 window-s=5
        | cli set bridge br0 policy=adaptive | run 3 | cli set bridge br0 mode=observe | load vnet0 9e8
        | load vnet2 9e8 | run 5 | cli plan | cli apply | cli set bridge br0 mode=enforce | run 5 | look
        | cli set bridge br0 poll-interval-ms=500 failback-delay-s=1 | down eth1 | up eth1 | run 5""",
    "lost-keys": """bond policy=load-based | run 3 | lose-keys | run 10 | look | find-keys | run 5 | lose-keys
        | run 29 | run 3 | find-keys | run 5 | grace 5 | lose-keys | run 8 | grace x | look""",
    "observe": """bond policy=load-based mode=observe window-s=5 | load vnet0 7e8 | load vnet2 7e8 | run 15
        | look | cli move vnet0 eth2 | cli set bridge br0 mode=enforce | run 10
        | cli set bridge br0 mode=observe | run 10 | down eth1 | run 5 | look""",
    "observe-plain": """plain policy=adaptive mode=observe | load vnet0 7e8 | load vnet2 7e8 | run 5 | look
        | cli plan | cli drain eth1 | cli set bridge br0 mode=enforce | run 3 | look""",
    "surroundings": """bond policy=load-based :stp_enable=True :mcast_snooping_enable=True
        :other_config={'forward-bpdu':'true'} :mirrors=vnet3 :protocols=('OpenFlow10',) eth1@bfd=True vnet2:blocked=True
        vnet1@kind='internal' | version 2.17.3 | run 5 | look | set :restores_flows=True | forget | run 3
        | set :restores_flows=False :datapath_id='00000000000000ab' | version 3.3.0 | run 70 | look""",
    # ---- operators
    "plans": """bond policy=load-based window-s=30 | load vnet0 5e8 | load vnet2 5e8 | run 10 | cli plan
        | cli plan --json | cli apply | cli apply | cli plan br9 | cli plan | down eth2 | cli apply br0
        | up eth2 | run 5 | look""",
    "attach-bond": """bond unattached | run 1 | cli check br0 | cli check br0 --policy adaptive --json
        | cli attach br0 --policy nonsense | cli attach br0 --uplink eth1 --policy adaptive
        | cli attach br0 --policy load-based | run 5 | cli attach br0 | look | cli check
        | cli detach br0 | run 5 | cli detach br0 --purge | cli attach br9 | cli show""",
    "attach-plain": """plain unattached uplinks=3 | run 1 | cli attach br0 | cli check br0 --uplink eth1
        | cli attach br0 --uplink eth1 --uplink eth2 --uplink eth3 --observe | run 5 | look
        | cli set bridge br0 mode=enforce | run 5 | cli detach br0 | run 3
        | cli attach br0 --uplink eth1 --uplink eth2 --teaming static --policy ip-hash | run 5
        | refuse one no-tool | cli detach br0 | run 5 | cli detach br0 | run 3""",
    "attach-troubles": """bond unattached | refuse bundle no | cli attach br0 | run 30 | hold
        | ask attach br0 policy=load-based | answer | run 5 | gone | cli detach br0 | run 40 | back | run 5
        | refuse write locked | cli detach br0 | run 5 | cli detach br0 | run 3 | spoil
        | cli attach br0 | run 30""",
    "confirm": """bond unattached | ask attach br0 policy=load-based --rollback-after 30 | run 5 | look
        | run 20 | ask confirm br0 | run 10 | ask set bridge br0 threshold=60 --rollback-after 20 | run 30
        | ask set bridge br0 threshold=55 policy=adaptive --rollback-after 60 | run 5 | look
        | ask rollback br0 | run 5 | ask confirm br0 | ask detach br0 --rollback-after 20 | run 40 | look
        | ask detach br0 --rollback-after 20 | ask confirm br0 | run 30
        | ask attach br0 policy=adaptive --rollback-after 20 | gone | run 40 | back | run 20""",
    "confirm-plain": """plain unattached | ask attach br0 uplinks=eth1,eth2 --rollback-after 20 | run 8 | restart
        | run 30 | ask attach br0 uplinks=eth1,eth2 --rollback-after x
        | ask attach br0 uplinks=eth1,eth2 --rollback-after 300 | run 5 | down eth1 | down eth2 | run 60
        | look | ask set interface vnet0 pin=eth2 --rollback-after 10 | run 300 | look""",
    # ---- the service
    "restart": """bond policy=adaptive vnet3.policy=load-based | load vnet0 5e8 | load vnet2 7e8 | run 5
        | cli pin vnet1 eth2 | restart | run 5 | look | down eth1 | restart | run 5 | gone | restart | back
        | run 3 | look""",
    "standby-service": """bond policy=load-based | run 3 | hear lead no | run 3 | cli show | cli show --json
        | cli move vnet0 eth2 | hear challenge | hear lead yes | run 5 | hear challenge | run 3
        | ask attach br0 | hear lead no | hear lead yes | run 3 | look""",
    "faults": """bond policy=load-based poll-interval-ms=60000 | run 3 | hear fault engine | hear fault database | run 3 | look
        | hear fault lines | run 3700 | cli show""",
    "fleet": """bond policy=load-based window-s=5 + plain policy=adaptive + lacp policy=address-hash
        + bond unattached | run 5 | load vnet0 9e8 | load vnet2 8e8 | run 3 | on br1 | down eth1-br1
        | load vnet1-br1 9e8 | run 3 | on br2 | gone | run 3 | look | cli show | cli check | cli plan | cli apply
        | cli attach br3 | run 3 | on br0 | cli drain eth2 | cli detach br1 | run 5
        | remove-bridge br2 | run 3 | look""",
    "top": """bond policy=load-based vnet1!vm-id=web + plain policy=adaptive vms=2 | load vnet0 6e8
        | load vnet2 5e8 | run 40 | cli history --port vnet0 | cli history br9 | cli history --last 0
        | top down down s s S r / w e b enter e escape m down enter y h escape p enter n + - u d
        right left end home q | cli top --sort x | cli show br1 | cli show br9""",
}

TEAMS = (
    *("bond", "bond uplinks=3", "plain", "plain uplinks=3", "plain uplinks=4", "static", "lacp"),
    *("lacp-fallback", "backup", "bond uplinks=3 eth3.role=standby"),
)
FREE = ("load-based", "adaptive", "originating-port", "explicit", "source-mac", "address-hash")
POLICIES = (*FREE, "slb", "dynamic", "load-based", "adaptive", "set", "set-port", "ip-hash")
OPTIONS = (
    *("window-s=5", "threshold=50", "failback-delay-s=5", "failback-delay-s=never"),
    *("path-check=on", "mode=observe", "vnet0.unit=source-mac", "vnet1.pin=eth2"),
    *("vnet0.affinity=a vnet2.affinity=a", "vnet1.anti-affinity=b vnet3.anti-affinity=b"),
    *("vnet2.prefer=!eth1", "vnet3.allow=eth1,eth2", "vnet0.reserve-mbps=700"),
    *("vnet1.limit-mbps=50", "vnet2.policy=adaptive", "vnet3.exclude=true", "vnet3.policy=dynamic"),
    *("connection-hash=dp_hash", "vnet0:tag=7", "vnet1:trunks=(7,9)", "eth2:trunks=(7,)"),
    *("vnet0!attached-mac=52:54:00:00:00:0a", ":mcast_snooping_enable=True"),
    *("eth1.capacity-mbps=500", "eth2.role=standby", "poll-interval-ms=500", "vnet2.shares=90"),
)
HAPPENS = (
    *("down eth1", "down eth2", "up eth1", "up eth2", "silent eth1", "gone | run 1 | back"),
    *("forget", "hold | run 1 | answer", "refuse bundle no", "add vnet8 18", "del vnet3"),
    *("renumber vnet2 22", "cli move vnet0 eth2", "cli move vnet1 eth1", "cli pin vnet2 eth1"),
    *("cli unpin vnet2", "spoil", "cli drain eth1", "cli undrain eth1", "cli plan", "cli apply"),
    *("restart", "load vnet0 9e8", "load vnet1 7e8", "load vnet2 4e8", "load vnet0 1e7", "cut 1"),
    *("cut", "load vnet3 1e9 2e7", "cli set bridge br0 mode=observe"),
    *("cli set bridge br0 mode=enforce", "refuse write locked"),
    *("cli set bridge br0 policy=adaptive", "cli set bridge br0 policy=load-based", "accept"),
    *("cli set interface vnet0 shares=70", "cli set interface eth2 role=standby", "lose-keys"),
    *("find-keys", "set vnet1:tag=9", "set threshold=x", "set threshold=70", "cli explain vnet0"),
    *("inbound vnet0 3e7 eth1", "inbound vnet1 5e8 eth2", "unlearn", "hear challenge", "cli show"),
)
LIVES = 12


def lives() -> dict[str, str]:
    """Scenarios drawn by a seed: what may happen in any order."""
    return {f"life-{seed:02}": _life(random.Random(f"life {seed}")) for seed in range(LIVES)}


def _life(chance: random.Random) -> str:
    options = " ".join(chance.sample(OPTIONS, 4))
    steps = ["run 3"]
    for _ in range(22):
        steps += [chance.choice(HAPPENS), f"run {chance.choice(('0.2', '1', '1', '4'))}"]
    # Keys that are lost are found, so that they are never asked for before.
    steps.insert(0, "lose-keys | find-keys")
    team = f"{chance.choice(TEAMS)} vms=4 policy={chance.choice(POLICIES)} {options}"
    return " | ".join([team, *steps, "accept", "answer", "run 20", "look"])


def configurations(count: int = 200) -> dict[str, str]:
    """Teams drawn by a seed, of which flows and groups are wanted."""
    found = {}
    for number in range(count):
        chance = random.Random(f"configuration {number}")
        options = " ".join(chance.sample(OPTIONS, chance.randint(0, 5)))
        policy = POLICIES[number % len(POLICIES)]
        vms = chance.choice((1, 2, 4, 4, 5))
        found[f"{number:03}"] = f"{chance.choice(TEAMS)} vms={vms} policy={policy} {options}"
    return found
