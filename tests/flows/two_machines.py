"""Simulate a cluster of two machines, in a separate process because a process can connect to only one Ray.

    python two_machines.py FOLDER

Runs an image task on two nodes, removes one during the run and adds another. Prints its observations as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.flows.mortal_model import MortalModel, read_log
from tests.flows.running import read_tables
from tests.making import write_task
from tests.making_media import make_noise_jpeg

import assay
from assay.models.replicas import actors

MACHINE = {"num_cpus": 1, "object_store_memory": 2**27}
"""Resources for one replica."""

FAST_HEALTH_CHECKS = {"health_check_period_ms": 500, "health_check_initial_delay_ms": 500}
"""Faster health checks: by default Ray checks every three seconds and needs five failed checks."""


@contextmanager
def start_head() -> Iterator[Any]:
    """Start the head node of a cluster."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
    from ray.cluster_utils import Cluster

    first = {**MACHINE, "include_dashboard": False, "_system_config": FAST_HEALTH_CHECKS}
    cluster = Cluster(initialize_head=True, head_node_args=first)
    try:
        yield cluster
    finally:
        cluster.shutdown()


def write_image_task(folder: Path) -> str:
    """Write a task with 80 documents and two images."""
    pictures = [folder / "small.jpg", folder / "large.jpg"]
    for number, path in enumerate(pictures):
        path.write_bytes(make_noise_jpeg((300 + 300 * number, 300)))
    rows = [
        {"question": f"What is {n} - {n} + {n % 4}?", "answer": str(n % 4), "picture": str(pictures[n % 2])}
        for n in range(80)
    ]
    return str(write_task(folder / "tasks", rows=rows, doc_to_image="picture"))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 150
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def record_stored_media() -> list[Any]:
    """Return a list that collects the references of media added to the object store."""
    stored: list[Any] = []
    put = actors.StoredMedia.__init__

    def record(self: Any, part: Any) -> None:
        put(self, part)
        stored.append(self.reference)

    actors.StoredMedia.__init__ = record  # type: ignore[method-assign]
    return stored


def main(folder: Path) -> dict[str, Any]:
    os.chdir(folder)
    log, hold = folder / "asked.log", folder / "hold"
    common: dict[str, Any] = {"tasks": [write_image_task(folder)], "no_cache": True, "log_samples": False}
    stored, runs = record_stored_media(), []
    model = MortalModel(log, delay_ms=5, window=8, hold=str(hold), free=10)
    hold.touch()  # all replicas wait after ten answers, so that work is left for a new one
    with start_head() as cluster:
        second = cluster.add_node(**MACHINE)
        cluster.wait_for_nodes()

        def work() -> None:
            runs.append(assay.run(model=model, output_path="two", replicas=2, ray=cluster.address, **common))

        working = threading.Thread(target=work)
        working.start()
        wait_until(lambda: len({pid for pid, _ in read_log(log)}) == 2 and len(read_log(log)) == 20)
        from ray.experimental import get_object_locations

        places = [len(found["node_ids"]) for found in get_object_locations(stored[:2]).values()]
        cluster.remove_node(second, allow_graceful=False)
        cluster.add_node(**MACHINE)
        wait_until(lambda: len({pid for pid, _ in read_log(log, "note")}) == 3)
        hold.unlink()
        working.join()
    times = Counter(key for _, key in read_log(log))
    alone = assay.run(model=MortalModel(folder / "alone.log"), output_path="one", **common)
    return {
        "same": read_tables(runs[0].folder) == read_tables(alone.folder),
        "processes": len({pid for pid, _ in read_log(log)}),
        "answered": len(times),
        "repeated": times.total() - len(times),
        "stored": len(stored),
        "places": places,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
