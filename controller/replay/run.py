"""Replays all hosts of a trace under all policies, in several processes.

A policy may be of another package, which offers a `Preset` in the entry-point group
`ovs_lbt.policies`. The service loads none of these.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from importlib.metadata import entry_points
from typing import Any

from controller.replay.figures import Figures, summed
from controller.replay.host import Host, Options
from controller.replay.trace import HostTrace
from controller.text.wording import Refused
from policies.presets import PRESETS, Preset

GROUP = "ovs_lbt.policies"

PROGRESS_INTERVAL_S = 0.2
# Nobody knows beforehand how long a host takes. With two processes for each core, those that are left
# at the end are ahead of where they would be if each had begun when another one ended.
PROCESSES_OF_CORE = 2
# How many more objects there may be before Python looks for circles among them. Its default is 700.
MADE_BETWEEN_SEARCHES = 20_000

# In a worker: the number of samples that all workers have replayed.
_passed: Any = None


def installed_policies() -> list[str]:
    """The names of installed policies. None is loaded, and none replaces a policy of ovs-lbt."""
    return sorted({entry.name for entry in entry_points(group=GROUP)} - PRESETS.keys())


def load_policy(name: str) -> None:
    """Add an installed policy to the presets of this process.

    Raises:
        Refused: it cannot be loaded, or replay cannot run it.
    """
    if name in PRESETS:
        return
    entry, *_ = entry_points(group=GROUP, name=name)
    try:
        preset = entry.load()
    except Exception as error:
        raise Refused(f"policy {name}: {entry.value} cannot be loaded: {error!r}") from error
    if not isinstance(preset, Preset):
        raise Refused(f"policy {name}: {entry.value} must be a policies.presets.Preset")
    if preset.spreads_by.hashed:
        # Register HASHED has a number for each hashed policy, and these are fixed.
        raise Refused(f"policy {name}: only policies that place whole VM ports can be added")
    PRESETS[name] = preset


def replay(
    hosts: Sequence[HostTrace],
    policies: Sequence[str],
    options: Options,
    progress: Callable[[float], None] = lambda _ratio: None,
    processes: int | None = None,
) -> dict[str, Figures]:
    """The figures of each policy over all hosts. `progress` gets the part that is done.

    Raises:
        Refused: the engine refuses a policy or a setting.
    """
    jobs = [(host, policy, options) for policy in policies for host in hosts]
    samples = sum(len(host.samples) for host, _, _ in jobs)
    processes = min(len(jobs), processes or PROCESSES_OF_CORE * len(os.sched_getaffinity(0)))
    # No thread runs yet whose lock a fork could copy in locked state.
    context = multiprocessing.get_context("fork")
    passed = context.Value("L", 0)
    with ProcessPoolExecutor(processes, context, _begin, (passed,)) as pool:
        futures = [pool.submit(_work, *job) for job in jobs]
        unfinished = set(futures)
        while unfinished:
            finished, unfinished = wait(unfinished, PROGRESS_INTERVAL_S)
            progress(passed.value / samples)
            if failed := next((f for f in finished if f.exception()), None):
                pool.shutdown(wait=False, cancel_futures=True)
                failed.result()
    found = [future.result() for future in futures]
    by_host = [found[n : n + len(hosts)] for n in range(0, len(jobs), len(hosts))]
    return {policy: summed(of) for policy, of in zip(policies, by_host, strict=True)}


def _begin(passed: Any) -> None:
    global _passed
    _passed = passed
    search_rarely()


def _work(host: HostTrace, policy: str, options: Options) -> Figures:
    def one_more() -> None:
        with _passed.get_lock():
            _passed.value += 1

    return Host(host, policy, options).replay(one_more)


def search_rarely() -> None:
    """From now on, let Python rarely look for objects that refer to each other in circles.

    A replay makes hardly any. It makes objects so fast that each search comes soon after the last one,
    and goes through the whole trace again and again.
    """
    gc.freeze()
    gc.set_threshold(MADE_BETWEEN_SEARCHES)
