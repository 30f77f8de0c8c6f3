"""The busiest thread of each core, between the last two readings of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sexton.model.rows.task import Process, Thread
from sexton.model.window import Window
from sexton.series.tasks import Task, TaskStep, kernel_ms, task_steps


class TaskLoad(NamedTuple):
    """The busiest thread of a core, and its share of it."""

    cpu: int
    comm: str
    pid: int
    tid: int
    share: float
    system: float

    @property
    def name(self) -> str:
        who = str(self.pid) if self.pid == self.tid else f"{self.pid}/{self.tid}"
        return f"{self.comm}[{who}]"


def worst_tasks(window: Window) -> Mapping[int, TaskLoad]:
    """Per core, the busiest of the threads that last ran there.

    Threads are read only for processes that used CPU, so one that was idle before is missing for
    one reading. For a process with a single thread its own row is used: it has the right core.
    """
    worst: dict[int, TaskLoad] = {}
    processes = (window.batches(Process) or ())[-2:]
    threads = (window.batches(Thread) or ())[-2:]
    alone = [step for step in task_steps(processes) if _had_one_thread(step)]
    every = [*_loads(alone, task_steps(processes, kernel_ms)),
             *_loads(task_steps(threads), task_steps(threads, kernel_ms))]  # fmt: skip
    for load in every:
        if load.cpu not in worst or worst[load.cpu].share < load.share:
            worst[load.cpu] = load
    return worst


def _had_one_thread(step: TaskStep[Process]) -> bool:
    return step.row.threads == 1 and (step.before is None or step.before.threads == 1)


def _loads(
    steps: Iterable[TaskStep[Any]], in_kernel: Iterable[TaskStep[Any]]
) -> Iterator[TaskLoad]:
    kernel: dict[Task, float] = {step.task: step.percent for step in in_kernel}
    for step in steps:
        row, system = step.row, kernel.get(step.task)
        if row.cpu is not None and system is not None and step.amount:
            _, tid, _ = step.task
            yield TaskLoad(row.cpu, row.comm, row.pid, tid, step.percent / 100, system / 100)
