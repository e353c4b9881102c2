"""A process that sends frames in steady rounds, and whose flows may change while it runs.

It stands alone, so that nothing the test does delays a frame. The first line of standard input is
`{"period_s": of a round}`. Each further line is one command, which is answered by one line:

- `{"set": {"NUMBER": [fd, frame as hex, every], "OTHER": null}}`: what these flows send from now
  on, each in every so manyth round; null: nothing more. The answer is the number of the first round
  of which this holds, and comes when that round is out.
- `{"report": ROUND}`: the answer has the number of the next round; when each round since ROUND began
  and ended; which flows an interface refused in which rounds; and how late a round was at worst.

The last 8 bytes of a frame are replaced by the number of its flow (2) and of its round (6). A sender
that is late does not catch up: a burst may be more than a switch has room for.
"""

from __future__ import annotations

import json
import os
import select
import time

# Of which a report can tell: more than any event takes.
ROUNDS_KEPT = 20_000


def main() -> None:
    with os.fdopen(0, "rb", buffering=0) as commands:
        _send(commands.fileno())


def _send(stdin: int) -> None:
    pending = b""
    period_s = 0.0
    flows: dict[int, tuple[int, bytearray, int]] = {}
    rounds: dict[int, tuple[float, float]] = {}
    refused: dict[int, list[int]] = {}
    latest_s, number = 0.0, 0
    told: list[str] = []
    due_s = time.monotonic()
    while True:
        wait_s = max(0.0, due_s - time.monotonic()) if period_s else None
        if select.select([stdin], [], [], wait_s)[0]:
            if not (data := os.read(stdin, 1 << 20)):
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "period_s" in order:
                    period_s, due_s = order["period_s"], time.monotonic()
                for key, flow in order.get("set", {}).items():
                    flows.pop(int(key), None)
                    if flow:
                        fd, frame, every = flow
                        flows[int(key)] = fd, bytearray.fromhex(frame), every
                if "set" in order:
                    told.append(json.dumps({"from": number}))
                if "report" in order:
                    since = order["report"]
                    report = {
                        "next": number,
                        "rounds": [[n, *at] for n, at in rounds.items() if n >= since],
                        "refused": {n: who for n, who in refused.items() if n >= since},
                        "latest_s": latest_s,
                    }
                    latest_s = 0.0
                    print(json.dumps(report), flush=True)
            continue
        now_s = time.monotonic()
        latest_s = max(latest_s, now_s - due_s)
        due_s = max(due_s + period_s, now_s)
        begun_s = time.time()
        sequence = number.to_bytes(6, "big")
        for flow_number, (fd, frame, every) in flows.items():
            if number % every == 0:
                frame[-8:] = flow_number.to_bytes(2, "big") + sequence
                try:
                    os.write(fd, frame)
                except OSError:
                    refused.setdefault(number, []).append(flow_number)
        rounds[number] = begun_s, time.time()
        rounds.pop(number - ROUNDS_KEPT, None)
        number += 1
        for answer in told:
            print(answer, flush=True)
        told.clear()


if __name__ == "__main__":
    main()
