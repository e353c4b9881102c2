"""Compares what the code does with the goldens, or makes them.

    python -m tests.goldens [NAME...]            exit status 1, and the first differences of each that differs
    python -m tests.goldens --write [NAME...]    make them from this code
    python -m tests.goldens --show NAME          the text of a golden

A NAME may have wildcards, as `engine-*`. CONTRIBUTING.md says when to write them.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.goldens import store
from tests.goldens.families import families, text_of


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.goldens", description=__doc__, formatter_class=form
    )
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--lines", type=int, default=store.MOST_LINES, help="lines of each difference to print"
    )
    parser.add_argument("--times", action="store_true", help="print the time and size of each")
    parser.add_argument("--first", action="store_true", help="stop at the first difference")
    options = parser.parse_args()
    logging.disable()
    gc.freeze()
    gc.set_threshold(50_000)
    known = list(families())
    wanted = options.names or ["*"]
    names = [name for name in known if any(fnmatch.fnmatch(name, one) for one in wanted)]
    if not names:
        parser.error(f"no recording is named {' '.join(wanted)}; expected {', '.join(known)}")
    if options.show:
        sys.stdout.write("".join(map(store.read, names)))
        return 0
    differing = []
    with ProcessPoolExecutor(options.jobs, get_context("fork")) as pool:
        done = pool.map(_made, names) if options.jobs > 1 else map(_made, names)
        for name, (text, cost_s) in zip(names, done, strict=True):
            if options.times:
                print(f"{name} {cost_s:.2f} s {len(text)} bytes")
            if options.write:
                differing += [name] if store.write(name, text) else []
            elif text != store.read(name):
                differing.append(name)
                print("\n".join(store.difference(name, text, options.lines)))
                if options.first:
                    break
    gone = {one.stem for one in store.DATA.glob("*.xz")} - {*known}
    if options.write:
        for name in gone:
            store.path(name).unlink()
        print(f"{len(differing)} of {len(names)} written")
        return 0
    print(f"{len(differing)} of {len(names)} differ: {' '.join(differing)}".rstrip(": "))
    return 1 if differing or gone else 0


def _made(name: str) -> tuple[str, float]:
    began_s = time.process_time()
    text = text_of(families()[name])
    return text, time.process_time() - began_s


if __name__ == "__main__":
    sys.exit(main())
