"""The threads of the gateway as greenlets: the seed chooses which of them goes on.

A thread stops at every call to the disk and every time it takes a lock, so another one
may run between any two of its steps.  Time passes only when the world says so.
"""

from __future__ import annotations

from collections.abc import Callable

from greenlet import getcurrent, greenlet

__all__ = ["Killed", "Scheduler", "Task"]


class Killed(BaseException):
    """The process is dead: none of its threads takes another step."""


class Task:
    """A thread of one life; implements `gateway.store.system.threads.Thread`."""

    def __init__(
        self, scheduler: Scheduler, name: str, run: Callable[[], None]
    ) -> None:
        self.name = name
        self._scheduler = scheduler
        self._run = run
        self.greenlet = greenlet(self._begin, scheduler.world)
        self.wake_at: float | None = 0.0
        """When it goes on by itself; None: only if it is notified."""
        self.condition: Condition | None = None
        """What it waits for."""
        self.failed: BaseException | None = None
        """What ended it, if it was not to end."""

    def start(self) -> None:
        """Begin at the next step that the seed gives it."""
        self._scheduler.tasks.append(self)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self.greenlet.dead

    def _begin(self) -> None:
        try:
            self._run()
        except Killed:
            pass
        except BaseException as why:
            self.failed = why

    def ready(self, now: float) -> bool:
        """Whether it can take a step."""
        return self.wake_at is not None and self.wake_at <= now


class Condition:
    """As `threading.Condition`; its lock is never contended, as nothing else runs."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> None:
        self._scheduler.preempt()

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is notified, or for so long; true if it was."""
        return self._scheduler.wait(self, timeout)

    def notify(self, n: int = 1) -> None:
        """Who waits for it is ready."""
        for task in self._scheduler.tasks:
            if task.condition is self:
                task.condition, task.wake_at = None, 0.0


class Scheduler:
    """Runs the tasks of one life; implements `gateway.store.system.threads.Threads`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.tasks: list[Task] = []
        self.dead = False
        self.world = getcurrent()
        """Where every task stops."""
        self._current: Task | None = None

    # -- the world's side -----------------------------------------------------

    def ready(self) -> list[Task]:
        """The tasks that can take a step."""
        now = self.clock()
        return [task for task in self.tasks if task.ready(now)]

    def wake_at(self) -> float | None:
        """When the next one will be ready."""
        waking = [task.wake_at for task in self.tasks if task.wake_at is not None]
        return min(waking, default=None)

    def step(self, task: Task) -> None:
        """Let it go on to its next stop."""
        self._current = task
        task.greenlet.switch()
        self._current = None
        if task.greenlet.dead:
            self.tasks.remove(task)

    def kill(self) -> None:
        """End them all, wherever they are."""
        self.dead = True
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            if task.greenlet and not task.greenlet.dead:
                task.greenlet.throw(Killed)

    @property
    def current(self) -> str:
        """Who takes a step; empty: the world."""
        return self._current.name if self._current else ""

    # -- the tasks' side ------------------------------------------------------

    def thread(self, name: str, run: Callable[[], None]) -> Task:
        """See `Threads`."""
        return Task(self, name, run)

    def condition(self) -> Condition:
        """See `Threads`."""
        return Condition(self)

    def preempt(self) -> None:
        """A place where another task may run; none in the reactor's turns."""
        task = self._current
        if task is not None and task.name != "reactor":
            self.pause(0.0)

    def pause(self, seconds: float) -> None:
        """The task that calls goes on after so long, or later."""
        task = self._current
        if self.dead:
            raise Killed
        if task is None:
            return  # the world itself looks at the disk
        task.wake_at = self.clock() + seconds
        self._switch()

    def wait(self, condition: Condition, timeout: float | None) -> bool:
        """See `Condition`."""
        task = self._current
        assert task is not None
        task.condition = condition
        task.wake_at = None if timeout is None else self.clock() + max(timeout, 0.0)
        self._switch()
        notified, task.condition = task.condition is None, None
        return notified

    def _switch(self) -> None:
        self.world.switch()
        if self.dead:
            raise Killed
