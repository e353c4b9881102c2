"""A process that sends frames at a steady rate, on sockets it was given.

It stands alone, so that nothing the test does delays a frame. It reads one JSON document
from standard input: `{"pps": rate per flow, "flows": [[fd, frame as hex], ...]}`. The last
6 bytes of a frame are replaced by its sequence number. It prints `started` once the first
round is out, sends until standard input closes, and prints what it did. If it is late it
catches up, unless it is later than `"catch_up_s"`: a burst may be more than a switch has room for,
and more load than was meant.
"""

from __future__ import annotations

import json
import math
import select
import socket
import sys
import time


def main() -> None:
    order = json.loads(sys.stdin.readline())
    period_s = 1.0 / order["pps"]
    flows = [(socket.socket(fileno=fd), bytearray.fromhex(frame)) for fd, frame in order["flows"]]
    catch_up_s = order.get("catch_up_s", math.inf)
    sequence = 0
    refused = [0] * len(flows)
    latest_s = 0.0
    start_s = time.monotonic()
    begun_late_s = 0.0
    while not select.select([sys.stdin], [], [], 0)[0]:
        due_s = start_s + sequence * period_s
        wait_s = due_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        latest_s = max(latest_s, -wait_s)
        if -wait_s > catch_up_s:
            start_s -= wait_s
            begun_late_s -= wait_s
        for index, (flow, frame) in enumerate(flows):
            frame[-6:] = sequence.to_bytes(6, "big")
            try:
                flow.send(frame)
            except OSError:
                refused[index] += 1
        if sequence == 0:
            print("started", flush=True)
        sequence += 1
    elapsed_s = time.monotonic() - start_s + begun_late_s
    report = {
        "sent": sequence,
        "refused": refused,
        "elapsed_s": elapsed_s,
        "latest_s": latest_s,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
