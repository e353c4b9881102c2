"""What uplinks and VM ports carry: from counters to rates, and to the snapshot that policies judge.

Polls, counters, rates, peaks, what crosses uplinks, uplinks that fill up; `judging` makes the
policies' `Snapshot` of it. It imports `teaming` and what that imports.
"""
