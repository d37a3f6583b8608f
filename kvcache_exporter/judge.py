"""One engine's judge: history in, indications, verdict out."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.indicators import all_indicators
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, Judgement, Observation
from kvcache_exporter.verdict import Moment, decide


class Judge:
    """Judges one engine, observation by observation."""

    def __init__(self, settings: JudgeSettings | None = None) -> None:
        self.settings = settings or JudgeSettings()
        self.history = History(self.settings)
        self.judgement: Judgement | None = None
        self._answers: dict[str, tuple[float, Indication | None]] = {}

    def observe(self, observation: Observation) -> Judgement:
        """Take in one observation of this engine and say what it is in now."""
        self.history.add(observation)
        moment = Moment(
            observation.time, observation.reading is not None, len(self.history.blocks) > 0
        )
        self.judgement = decide(self._indications(), self.judgement, moment, self.settings)
        return self.judgement

    def _indications(self) -> list[Indication]:
        now = self.history.time
        for name, every_seconds, indicate in all_indicators():
            last = self._answers.get(name)
            if last is None or now - last[0] >= every_seconds:
                self._answers[name] = (now, indicate(self.history, self.settings))
        return [answer for _, answer in self._answers.values() if answer is not None]
