"""The search of one target: `python -m tests.unit.fuzz.guided TARGET SECONDS DIRECTORY [BYTES]`.

libFuzzer (atheris) makes bytes, and hypothesis makes a case of them. Bytes that reach new code are kept, and are
the base of further ones. What came of it is in `result.json`. BYTES: store the bytes that were kept in a file of
this size at most. Where atheris is not installed, hypothesis draws cases at random.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Never

GUIDED = importlib.util.find_spec("atheris") is not None
if GUIDED:
    import atheris

    instrumented = atheris.instrument_imports(include=["controller", "policies", "os_ken.ofproto"])
else:
    instrumented = contextlib.nullcontext()
with instrumented:
    from tests.unit.fuzz import corpus, runs
    from tests.unit.fuzz.targets import TARGETS

BATCH = 100


def main() -> Never:
    name, seconds, place, *most = sys.argv[1:]
    directory, done = Path(place), 0
    target, found = TARGETS[name], directory / "found"
    check = runs.checked(target)
    take = check.hypothesis.fuzz_one_input
    corpus.unpack(name, found)
    began_s = time.monotonic()

    def end(failure: str | None) -> Never:
        took_s = round(time.monotonic() - began_s, 1)
        told = {"cases": done, "seconds": took_s, "guided": GUIDED, "failure": failure}
        (directory / "result.json").write_text(json.dumps(told))
        if most and not failure:
            corpus.keep(name, found, take, int(most[0]))
        # libFuzzer never returns.
        os._exit(1 if failure else 0)

    def one(data: bytes) -> None:
        nonlocal done
        if time.monotonic() - began_s > float(seconds):
            end(None)
        done += 1
        try:
            take(data)
        except BaseException as error:
            (directory / "failed").write_bytes(data)
            end(runs.smallest(check, error))

    options = ["-len_control=0", "-max_len=4096", "-timeout=300", "-rss_limit_mb=0"]
    if GUIDED:
        atheris.Setup([name, *options, f"-artifact_prefix={directory}/", str(found)], one)
        atheris.Fuzz()
    for data in corpus.read(name):
        one(data)
    while time.monotonic() - began_s < float(seconds):
        drawn = runs.checked(target, done + 1, BATCH)
        try:
            drawn()
        except BaseException as error:
            end(runs.shown(error))
        done += BATCH
    end(None)


if __name__ == "__main__":
    main()
