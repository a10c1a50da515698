"""The queue engine: procrastinate brings shards to workers through the same PostgreSQL that holds the history.

A job says only which shard is to be measured; what became of it is written in the shard alone. So a job may be lost,
done twice or done late without harm: `tend` queues anew what waits and drops the jobs of workers that are gone. While
a worker measures it sleeps in one system call, and so do its timers; while it idles it asks every minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from perfguard.errors import DatabaseError, UsageError
from perfguard.fleet import overview, shards
from perfguard.fleet.schedules import submit_due
from perfguard.history.database import Database
from perfguard.records.fleet import Engine

if TYPE_CHECKING:
    from procrastinate import App
    from procrastinate.job_context import JobContext
    from procrastinate.jobs import Job
    from procrastinate.worker import Worker

_TENDING = "tending"  # Queue that every worker serves
_TENDS = 10  # Polls between two tendings
_FOREVER_S = 10 * 365 * 86_400.0
_BATCH = 1_000
_FIRST = 1_000  # Priority of tending, before all shards

Measure = Callable[[int], bool]
"""Measures a shard, and says whether the worker should go on."""


def require_queue(database: Database) -> None:
    """Raises UsageError: the database is no PostgreSQL, or procrastinate is not installed."""
    if database.is_sqlite:
        raise UsageError(
            f"{database.name} is a SQLite file, which one machine alone can use; set PERFGUARD_DATABASE, or `database` "
            "in your own configuration, to a PostgreSQL URL; `submit --engine slurm` needs none"
        )
    _import()


def _import() -> Any:
    try:
        import procrastinate
    except ModuleNotFoundError:
        raise UsageError(
            "a fleet needs procrastinate, which is not installed: pip install 'perfguard[fleet]'"
        ) from None
    return procrastinate


def _app(database: Database) -> App:
    procrastinate = _import()
    url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    connector = procrastinate.PsycopgConnector(
        conninfo=url, min_size=1, max_size=3, timeout=30.0, pool_factory=_unchecked_pool
    )
    app: App = procrastinate.App(connector=connector)
    return app


def has_queue(database: Database) -> bool:
    """Whether procrastinate's tables are there."""
    from sqlalchemy import inspect

    if database.is_sqlite:
        return False
    with database.reading() as connection:
        return inspect(connection).has_table("procrastinate_jobs")


def _unchecked_pool(**settings: Any) -> Any:
    """A pool that asks nothing before each use, which would wake an idle host twice as often; `work` starts anew."""
    from psycopg_pool import AsyncConnectionPool

    return AsyncConnectionPool(**{**settings, "check": None})


def create_queue(database: Database) -> None:
    """Make procrastinate's tables where there are none. Raises DatabaseError: they cannot be made."""
    if has_queue(database):
        return

    async def create() -> None:
        app = _app(database)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    _run(database, create())


def require_ready(database: Database) -> None:
    """Raises UsageError: the fleet's tables were never made."""
    require_queue(database)
    if not has_queue(database):
        raise UsageError(f"{database.name} has no queue yet; `perfguard fleet init` makes it")


def tend(database: Database) -> None:
    """Take shards from hosts that are gone, submit what is due, and queue all that waits and is not queued.

    Any process may do it, at any time and several at once.

    Raises:
        DatabaseError: The database cannot be reached.
    """
    require_ready(database)
    _run(database, _tend_alone(database))


async def _tend_alone(database: Database) -> None:
    async with _app(database).open_async() as app:
        _register(app, database, lambda _: True)
        await _tend(app, database)


async def _tend(app: App, database: Database, *, own_job: int | None = None) -> None:
    shards.expire(database, Engine.QUEUE)
    submit_due(database)
    await _drop_lost(app, database, own_job)
    await _queue(app, database)


async def _drop_lost(app: App, database: Database, own_job: int | None) -> None:
    """Drop jobs that are being done although nobody measures their shard: their workers are gone, or lost them.

    Dropping one that has just begun does no harm: its shard is claimed all the same.
    """
    from procrastinate.jobs import Status

    doing = list(await app.job_manager.list_jobs_async(status=Status.DOING.value))
    measured = overview.measured_of(database, [_shard_of(job) for job in doing])
    for job in doing:
        if _shard_of(job) not in measured and job.id not in (None, own_job):
            with contextlib.suppress(_import().exceptions.ConnectorException):  # it has ended meanwhile
                await app.job_manager.finish_job_by_id_async(job.id, status=Status.FAILED, delete_job=True)


def _shard_of(job: Job) -> int:
    """The shard of a job; 0 where it is about none."""
    found = job.task_kwargs.get("shard_id", 0)
    return found if isinstance(found, int) else 0


async def _queue(app: App, database: Database) -> None:
    """Queue each waiting shard that has no job; the lock keeps two tenders from queueing one twice."""
    queued = _queued(database)
    missing = [shard for shard in overview.waiting(database, Engine.QUEUE) if _lock(shard.id) not in queued]
    for start in range(0, len(missing), _BATCH):
        await _defer(app, missing[start : start + _BATCH])


async def _defer(app: App, missing: Sequence[overview.Waiting], *, pause_s: float = 0.0) -> None:
    """Queue shards; those that were lost before come first, after a pause for each attempt."""
    manager, task = app.job_manager, app.tasks["measure_shard"]
    jobs = [
        task.configure(
            queue=shard.machine_class,
            queueing_lock=_lock(shard.id),
            priority=shard.attempts,
            schedule_in={"milliseconds": round(1000 * pause_s * shard.attempts)},
            task_kwargs={"shard_id": shard.id},
        ).job
        for shard in missing
    ]
    try:
        await manager.batch_defer_jobs_async(jobs)
    except _import().exceptions.AlreadyEnqueued:  # another tender was faster with one of them
        for job in jobs:
            with contextlib.suppress(_import().exceptions.AlreadyEnqueued):
                await manager.defer_job_async(job)


def _lock(shard_id: int) -> str:
    return f"shard-{shard_id}"


def _queued(database: Database) -> set[str]:
    from sqlalchemy import text

    with database.reading() as connection:
        jobs = "SELECT queueing_lock FROM procrastinate_jobs WHERE status = 'todo' AND queueing_lock IS NOT NULL"
        return set(connection.execute(text(jobs)).scalars())


def work(database: Database, classes: Sequence[str], measure: Measure, *, poll_s: float, is_once: bool = False) -> None:
    """Measure shards of these classes until told to stop by a signal; with `is_once` until none waits.

    A database that goes away later is waited for.

    Raises:
        DatabaseError: The database cannot be reached at first.
        KeyboardInterrupt: A signal came while a shard was measured.
    """
    require_ready(database)
    # What goes wrong is found by `tend`; the library's own words would be about jobs that nobody knows.
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    measuring = _Measuring(measure)
    with measuring.heeding_signals():
        while not measuring.is_over:
            try:
                _run(database, _work(database, classes, measuring, poll_s=poll_s, is_once=is_once))
                measuring.is_over = measuring.is_over or is_once
            except DatabaseError:
                if is_once:
                    raise
            if not measuring.is_over:
                time.sleep(poll_s)
    if measuring.was_interrupted:
        raise KeyboardInterrupt


async def _work(
    database: Database, classes: Sequence[str], measuring: _Measuring, *, poll_s: float, is_once: bool
) -> None:
    """Work until told to stop, or until the database is away."""
    from procrastinate.worker import Worker

    async with _app(database).open_async() as app:
        _register(
            app,
            database,
            measuring,
            poll_s=0.0 if is_once else poll_s,
            cron=None if is_once else _every(_TENDS * poll_s),
        )
        await _tend(app, database)
        database.close()
        worker = Worker(
            app,
            queues=[*classes, _TENDING],
            concurrency=1,
            wait=not is_once,
            fetch_job_polling_interval=poll_s,
            abort_job_polling_interval=_FOREVER_S,
            listen_notify=False,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=_FOREVER_S,
            # Leases say who is gone; a worker that measures gives no sign.
            stalled_worker_timeout=_FOREVER_S,
        )
        with measuring.by(worker):
            await worker.run()  # type: ignore[no-untyped-call]


class _Measuring:
    """Measures in the event loop's own thread: while it sleeps there, no timer runs."""

    def __init__(self, measure: Measure) -> None:
        self.is_over = False  # Whether the worker is to end
        self.was_interrupted = False
        self._measure = measure
        self._is_busy = False
        self._stop: Callable[[], object] | None = None  # Stops a worker that idles

    def __call__(self, shard_id: int) -> bool:
        self._is_busy = True
        try:
            goes_on = self._measure(shard_id)
        except KeyboardInterrupt:
            self.was_interrupted, goes_on = True, False
        finally:
            self._is_busy = False
        if not goes_on:
            self._end()
        return goes_on

    def _end(self) -> None:
        self.is_over = True
        if self._stop is not None:
            self._stop()

    @contextlib.contextmanager
    def by(self, worker: Worker) -> Iterator[None]:
        """While entered, this worker is the one to stop."""
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(worker.stop)
        try:
            if self.is_over:
                self._end()
            yield
        finally:
            self._stop = None

    @contextlib.contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """While entered, SIGINT and SIGTERM end a measurement at once, or let an idle worker stop."""

        def handle(*_: object) -> None:
            if self._is_busy or self._stop is None:
                raise KeyboardInterrupt
            self._end()

        previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _register(app: App, database: Database, measure: Measure, *, poll_s: float = 0.0, cron: str | None = None) -> None:
    async def measure_shard(shard_id: int) -> None:
        measure(shard_id)
        # It gave nothing, or was given back. After a failure another host may be better: this one asks first.
        await _defer(app, overview.waiting(database, Engine.QUEUE, shard_id=shard_id), pause_s=2 * poll_s)
        database.close()  # an idle worker holds one connection, that of procrastinate

    async def tend_fleet(context: JobContext, timestamp: int) -> None:
        del timestamp
        await _tend(app, database, own_job=context.job.id)
        database.close()

    app.task(name="measure_shard")(measure_shard)
    # Only the lock on queueing: a lock on running would be held by a worker that was killed.
    task = app.task(name="tend_fleet", queue=_TENDING, queueing_lock=_TENDING, priority=_FIRST, pass_context=True)(
        tend_fleet
    )
    if cron is not None:
        app.periodic(cron=cron)(task)


def _every(seconds: float) -> str:
    """A cron expression, with seconds as sixth field where it is less than a minute."""
    if seconds < 60:
        return f"* * * * * */{max(1, round(seconds))}"
    return f"*/{min(59, round(seconds / 60))} * * * *"


def _run(database: Database, doing: Any) -> None:
    exceptions = _import().exceptions
    try:
        asyncio.run(doing)
    except exceptions.ConnectorException as error:
        said = str(error.__cause__ or error).strip().splitlines()
        raise DatabaseError(f"the database {database.name} fails: {said[0] if said else 'no answer'}") from error
    except TimeoutError as error:
        raise DatabaseError(f"the database {database.name} gives no answer") from error
