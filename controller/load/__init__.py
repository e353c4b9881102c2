"""What uplinks and VM ports carry: from counters to rates, and to the snapshot that policies judge.

This room schedules polls, turns counters into rates and peaks, and notices uplinks that fill up.
`team_view` makes the `Snapshot` for policies. The room imports `teaming` and the rooms below it.
"""
