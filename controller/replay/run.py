"""Replays all hosts of a trace with all policies, in several processes.

A policy can be from another package, which provides a `Preset` in the entry-point group
`ovs_lbt.policies`. The service does not load such policies.
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
# The time that a host takes is not known in advance. With two processes for each core, the last
# processes start earlier, and so end earlier, than with one.
PROCESSES_OF_CORE = 2
# The number of new objects after which Python searches for reference cycles. The default is 700.
MADE_BETWEEN_SEARCHES = 20_000

# In a worker: the number of samples that all workers have replayed.
_passed: Any = None


def installed_policies() -> list[str]:
    """Return the names of policies in other installed packages, without loading these policies."""
    return sorted({entry.name for entry in entry_points(group=GROUP)} - PRESETS.keys())


def load_policy(name: str) -> None:
    """Add a policy from another package to the presets of this process.

    Raises:
        Refused: the policy cannot be loaded, or replay does not support it.
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
        # Register HASHED contains a number for each hashed policy, and these numbers are fixed.
        raise Refused(f"policy {name}: only policies that place whole VM ports can be added")
    PRESETS[name] = preset


def replay(
    hosts: Sequence[HostTrace],
    policies: Sequence[str],
    options: Options,
    progress: Callable[[float], None] = lambda _ratio: None,
    processes: int | None = None,
) -> dict[str, Figures]:
    """Return the figures of each policy over all hosts. `progress` is called with the completed part (0 to 1).

    Raises:
        Refused: the engine refuses a policy or a setting.
    """
    jobs = [(host, policy, options) for policy in policies for host in hosts]
    samples = sum(len(host.samples) for host, _, _ in jobs)
    processes = min(len(jobs), processes or PROCESSES_OF_CORE * len(os.sched_getaffinity(0)))
    # A fork is safe, because no other thread is running that could hold a lock.
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
    """Make Python's garbage collector run rarely from now on.

    A replay creates few reference cycles, but so many objects that collections would be frequent,
    and each collection would examine the whole trace.
    """
    gc.freeze()
    gc.set_threshold(MADE_BETWEEN_SEARCHES)
