"""One engine's judge: history in, indications, verdict out."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.indicators import all_indicators
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.leak import Leak, remember
from kvcache_exporter.model import Indication, Judgement, Observation
from kvcache_exporter.verdict import decide


class Judge:
    """Judges one engine, observation by observation."""

    def __init__(self, settings: JudgeSettings | None = None) -> None:
        self.settings = settings or JudgeSettings()
        self.history = History(self.settings)
        self.leak = Leak()
        self.judgement: Judgement | None = None
        self._answers: dict[str, tuple[float, Indication | None]] = {}
        self._judged: tuple[float, object] = (-1e18, None)

    def observe(self, observation: Observation) -> Judgement:
        """Take in one observation of this engine and say what it is in now.

        Nothing is judged anew within ``judge_seconds`` while the engine just goes on.
        """
        self.history.add(observation)
        now, notable = observation.time, self._notable()
        if (
            self.judgement is None
            or notable != self._judged[1]
            or now - self._judged[0] >= self.settings.judge_seconds
        ):
            self._judged = (now, notable)
            return self._judge()
        return self.judgement

    def conclude(self) -> Judgement:
        """Judge what is known now, whatever was judged when: for the end of a recording."""
        self._answers.clear()
        return self._judge()

    def _notable(self) -> object:
        """What must not wait: that it fails, sleeps, wakes, queues, restarts or falls idle."""
        history = self.history
        reading = history.reading
        if reading is None:
            return None
        idle, queued = history.idle.is_idle, bool(reading.waiting)
        return history.epoch, history.blocks.total, idle, queued, reading.sleeping, history.problems

    def _judge(self) -> Judgement:
        history, settings = self.history, self.settings
        answers = self._indications()
        self.leak = remember(self.leak, answers, history, settings)
        self.judgement = decide(
            tuple(answers.values()), self.leak, self.judgement, history, settings
        )
        return self.judgement

    def _indications(self) -> dict[str, Indication]:
        now = self.history.time
        for name, every_seconds, indicate in all_indicators():
            last = self._answers.get(name)
            if last is None or now - last[0] >= every_seconds:
                self._answers[name] = (now, indicate(self.history, self.settings))
        return {name: answer for name, (_, answer) in self._answers.items() if answer is not None}
