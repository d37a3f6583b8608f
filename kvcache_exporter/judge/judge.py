"""One engine's judge: history in, indications, verdict out."""

from __future__ import annotations

import math

from kvcache_exporter.audits.answers import lost_blocks
from kvcache_exporter.history import History
from kvcache_exporter.indicators import all_indicators
from kvcache_exporter.indicators.saturation import is_saturated
from kvcache_exporter.judge.leak import Leak, remember
from kvcache_exporter.judge.verdict import decide
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, Judgement, Observation, State


class Judge:
    """Judges one engine, observation by observation."""

    def __init__(self, settings: JudgeSettings | None = None) -> None:
        self.settings = settings or JudgeSettings()
        self.history = History(self.settings)
        self.leak = Leak()
        self.judgement: Judgement | None = None
        self._answers: dict[str, Indication | None] = {}
        self._asked = [-math.inf] * len(all_indicators())
        self._judged: tuple[float, object] = (-1e18, None)

    def observe(self, observation: Observation) -> Judgement:
        """Take in one observation of this engine and say what it is in now.

        Nothing is judged anew within a minute (five of a calm engine) while it just goes on.
        """
        self.history.add(observation)
        now, notable = observation.time, self._notable()
        known, (time, before) = self.judgement, self._judged
        if known is not None and notable == before and self._is_young(known, now - time):
            return known
        self._judged = (now, notable)
        return self._judge()

    def _is_young(self, known: Judgement, age: float) -> bool:
        """Whether the verdict may stand a while longer as nothing notable happens."""
        settings = self.settings
        if age >= settings.calm_seconds:
            return False
        if age >= settings.judge_seconds:
            return self._is_calm(known)
        if age < settings.contradicted_seconds or not self._is_contradicted():
            return True
        return known.state is not State.OK and self._has_settled(known)

    def _is_contradicted(self) -> bool:
        """Whether rest shows blocks that nobody may hold and no leak is called, or the opposite."""
        idle = self.history.idle
        if not idle.is_idle:
            return False
        return self._rests_clean() if self.leak.active else idle.table.last("floor") >= 2

    def _rests_clean(self) -> bool:
        return self.history.idle.clean_time == self.history.time

    def _is_calm(self, known: Judgement) -> bool:
        """Whether all is well, or as it has been for long, and nothing waits, stands or is held."""
        history, settings = self.history, self.settings
        well = known.state is State.OK and not known.findings
        if not well and not self._has_settled(known):
            return False
        reading = history.reading
        if reading is None or reading.waiting:
            return False
        if not reading.running:
            return self.leak.active or self._rests_clean() or self._has_settled(known)
        still = history.unchanged_seconds("generation_tokens") or 0.0
        return still < settings.judge_seconds

    def _has_settled(self, known: Judgement) -> bool:
        return self.history.time - known.since >= self.settings.settled_seconds

    def conclude(self) -> Judgement:
        """Judge what is known now, whatever was judged when: for the end of a recording."""
        self._asked = [-math.inf] * len(self._asked)
        return self._judge()

    def _notable(self) -> object:
        """What must not wait: failure, sleep, a restart, a full cache, rest that contradicts us.

        A block that closes does not count here: it can wait for the next look.
        """
        history = self.history
        reading, told = history.reading, self._is_contradicted()
        if reading is None:
            return None
        lost = history.audit is not None and bool(lost_blocks(history.audit))
        full = bool(reading.waiting) and is_saturated(history)
        return history.epoch, told, reading.sleeping, history.problems, lost, full

    def _judge(self) -> Judgement:
        history, settings = self.history, self.settings
        answers = self._indications()
        self.leak = remember(self.leak, answers, history, settings)
        self.judgement = decide(
            tuple(answers.values()), self.leak, self.judgement, history, settings
        )
        return self.judgement

    def _indications(self) -> dict[str, Indication]:
        now, answers, asked = self.history.time, self._answers, self._asked
        for index, (name, every_seconds, indicate) in enumerate(all_indicators()):
            if now - asked[index] >= every_seconds:
                asked[index] = now
                answers[name] = indicate(self.history, self.settings)
        return {name: answer for name, answer in answers.items() if answer is not None}
