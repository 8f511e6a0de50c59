"""A watcher that scores every new version on a public test set: into a file, and for the server. It never joins."""

import csv
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TextIO

import numpy as np
import structlog
from hushgrad.client import watcher
from hushgrad.client.data import Dataset
from hushgrad.client.errors import InputError
from hushgrad.client.models.base import Model
from hushgrad.client.retry import Outage
from hushgrad.client.transport import FaultError, RetryableError, Transport


@dataclass(frozen=True, slots=True)
class Score:
    """One version on the test set.

    Attributes:
        version: which.
        accuracy: share of records whose most probable class is theirs.
        log_loss: mean negative log-likelihood of their class, natural logarithm.
        accuracy_averaged: accuracy of the averaged model; None where there is none.
        seconds: since the evaluator was started.
    """

    version: int
    accuracy: float
    log_loss: float
    accuracy_averaged: float | None
    seconds: float


class Evaluator:
    """Scores versions as they come, skipping to the newest, until the federation has ended.

    Args:
        transport: connected, with the terms in use.
        model: the model of the federation.
        dataset: public test records.
        output: the CSV file; an existing one is replaced.
        final_version: the last version there will be; nothing is waited for after it.
        report: whether the server is told each accuracy. What it does not take is in the file all the same.
        clock: seconds that never run backwards.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        model: Model,
        dataset: Dataset,
        output: Path,
        final_version: int,
        report: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._model = model
        self._dataset = dataset
        self._rows = dataset.prepare(model)
        self._output = output
        self._final_version = final_version
        self._reports = report
        self._clock = clock
        self._since = clock()
        self._log = structlog.get_logger()
        self._seen: queue.SimpleQueue[watcher.Seen | None] = queue.SimpleQueue()

    def stop(self) -> None:
        """Asks it to end. May be called from a signal handler."""
        self._seen.put(None)

    def run(self) -> Score | None:
        """Runs until the federation has ended or somebody asked to stop; returns the last score."""
        size = 4 * sum(spec.size for spec in self._model.arrays)
        outage = Outage(self._transport.address, self._clock)
        watch = watcher.Watcher(self._transport, self._seen.put, outage, model_bytes=size)
        last: Score | None = None
        watch.start()
        try:
            with _curve(self._output) as write:
                for received in self._versions():
                    last = self._score(received)
                    write(last)
                    self._log.info(
                        "scored",
                        version=last.version,
                        accuracy=last.accuracy,
                        log_loss=last.log_loss,
                        accuracy_averaged=last.accuracy_averaged,
                    )
                    self._report(last)
        finally:
            watch.stop()
            self._transport.close()
        self._log.info("finished", reason="ended", version=last.version if last else None)
        return last

    def _versions(self) -> Iterator[watcher.ModelReceived]:
        """Yields versions, each time the newest that has arrived."""
        over = False
        while not over:
            newest: watcher.ModelReceived | None = None
            waiting = True
            while waiting and not over:
                match self._seen.get():
                    case watcher.ModelReceived() as received:
                        newest = received
                    case watcher.WatchFailed(error=error):
                        raise error
                    case None | watcher.FederationEnded():
                        over = True
                waiting = newest is None or not self._seen.empty()
            if newest is not None:
                yield newest
                over |= newest.version >= self._final_version

    def _score(self, received: watcher.ModelReceived) -> Score:
        from sklearn import metrics  # takes a second to import: after the connection, not before

        probabilities = self._predict(received.model)
        labels = self._dataset.labels
        averaged: float | None = None
        if received.averaged_available:
            try:
                average = self._transport.get_model(received.version, kind="averaged")
            except FaultError:
                average = b""  # not kept any longer, or no answer just now: the curve has a gap there
            if average:
                averaged = float(metrics.accuracy_score(labels, self._predict(average).argmax(axis=1)))
        return Score(
            version=received.version,
            accuracy=float(metrics.accuracy_score(labels, probabilities.argmax(axis=1))),
            log_loss=float(metrics.log_loss(labels, probabilities, labels=np.arange(self._model.classes))),
            accuracy_averaged=averaged,
            seconds=round(self._clock() - self._since, 3),
        )

    def _report(self, score: Score) -> None:
        """Tells the server. A server that cannot take it now hears the next one; one that never will is left alone."""
        if not self._reports:
            return
        try:
            verdict = self._transport.report_evaluation(
                score.version,
                accuracy=score.accuracy,
                averaged_accuracy=score.accuracy_averaged,
                examples=len(self._dataset.labels),
            )
        except RetryableError as error:
            self._log.warning("score_not_reported", version=score.version, why=str(error))
        except FaultError as error:
            self._reports = False
            self._log.warning("scores_not_taken", why=str(error))
        else:
            if verdict.answer != "ACCEPTED":
                self._log.warning("score_not_reported", version=score.version, why=verdict.answer)

    def _predict(self, model: bytes) -> np.ndarray:
        return self._model.predict(np.frombuffer(model, "<f4").astype(np.float64), self._rows)


@contextmanager
def _curve(path: Path) -> Iterator[Callable[[Score], None]]:
    """Opens the file and yields what appends one row, at once on disk for whoever follows it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file: TextIO = path.open("w", newline="")
    except OSError as error:
        raise InputError(
            f"the curve cannot be written to {path}: {error.strerror}; name another file as output"
        ) from None
    with file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Score))
        file.flush()

        def write(score: Score) -> None:
            writer.writerow("" if value is None else value for value in asdict(score).values())
            file.flush()

        yield write
