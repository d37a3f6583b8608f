"""What is asked of the server: sizes of prompts and answers, shared beginnings, hang-ups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

_WORDS = ("time", "year", "people", "way", "day", "thing", "life", "child", "world", "school")
_LONG, _SHORT = (1200, 2000), (20, 60)
_ANSWER_LONG, _ANSWER_SHORT = (400, 800), (8, 32)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to be made: a made-up prompt, a size of answer, perhaps a hang-up."""

    prompt: str
    max_tokens: int
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """Ranges from which each request is drawn."""

    prompt_words: tuple[int, int]
    max_tokens: tuple[int, int]
    shared_words: int = 0
    """Length of a beginning that all prompts of a profile share in one of four versions."""
    cancel_share: float = 0.0
    """Share of requests whose client hangs up after the first tokens."""

    def ask(self, random: Random, scale: float = 1.0) -> Ask:
        """Draw one request; *scale* shrinks prompts and answers to a small context window."""
        shared = ""
        if self.shared_words:
            shared = _text(Random(random.randrange(4)), int(self.shared_words * scale)) + " "  # noqa: S311
        words = max(1, int(random.randint(*self.prompt_words) * scale))
        tokens = max(1, int(random.randint(*self.max_tokens) * scale))
        cancel = random.random() < self.cancel_share
        return Ask(shared + _text(random, words), tokens, cancel)


PROFILES: Mapping[str, Profile] = {
    "short-short": Profile(_SHORT, _ANSWER_SHORT),
    "long-short": Profile(_LONG, _ANSWER_SHORT),
    "short-long": Profile(_SHORT, _ANSWER_LONG),
    "shared-prefix": Profile(_SHORT, _ANSWER_SHORT, shared_words=1000),
    "cancels": Profile(_SHORT, _ANSWER_LONG, cancel_share=0.3),
}


def draw(names: tuple[str, ...], random: Random, scale: float) -> tuple[str, Ask]:
    """Draw a profile of *names* and a request of it; several names are mixed evenly."""
    name = random.choice(names)
    return name, PROFILES[name].ask(random, scale)


def _text(random: Random, words: int) -> str:
    return " ".join(random.choice(_WORDS) for _ in range(words))
