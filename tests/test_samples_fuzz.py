"""Whatever happens to a real page on its way, nothing is raised and no series is invented."""

from __future__ import annotations

from pathlib import Path

import prometheus_client.parser as text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.engines import vllm
from kvcache_exporter.expose import escape
from kvcache_exporter.model import Problem, Sample
from kvcache_exporter.samples import MAX_LABEL_VALUE_CHARACTERS, Parser

PAGES = sorted((Path(__file__).parent / "data" / "pages").glob("*.prom"))
WANTED = Parser(vllm.NAMES, vllm.PLAIN)
NUMBERS = ("NaN", "+Inf", "-1", "1e400", "1_0", "٣", "0x1", "1.0000001", "", "9" * 400, "1e-320")
MUTATIONS = ("delete", "double", "move", "cut", "byte", "number", "label", "glue")
BYTES = (b"\x00", b"\xff", b'"', b"{", b"}", b"\\", b",", b"\r", b"#", b" ", b"\n", b"0")


def short(body: bytes) -> list[bytes]:
    """The lines we read and a few of the others, so that most mutations hit something."""
    samples = WANTED.parse(body)
    names = {s.name.encode() for s in samples} if isinstance(samples, list) else set()
    lines = body.split(b"\n")[:-1]
    return [
        line
        for number, line in enumerate(lines)
        if number % 40 == 0 or line.replace(b"{", b" ").split(b" ")[0] in names
    ]


SHORT = [lines for page in PAGES if len(lines := short(page.read_bytes())) > 10]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    lines = list(draw(st.sampled_from(SHORT)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        cut = draw(st.integers(0, len(line)))
        match draw(st.sampled_from(MUTATIONS)):
            case "delete" if len(lines) > 1:
                del lines[at]
            case "double":
                lines.insert(draw(st.integers(0, len(lines))), line)
            case "move":
                lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
            case "cut":
                lines[at] = line[:cut]
            case "byte":
                lines[at] = line[:cut] + draw(st.sampled_from(BYTES)) + line[cut + 1 :]
            case "number":
                number = draw(st.sampled_from(NUMBERS)).encode()
                lines[at] = line.rpartition(b" ")[0] + b" " + number
            case "label":
                value = draw(st.text(max_size=8)).encode("utf-8", "replace")
                lines[at] = line.replace(b'engine="0"', b'engine="' + value + b'"')
            case "glue":
                lines[at] = line + line
    return b"\n".join(lines) + b"\n" * draw(st.integers(0, 2))


def stands_on(sample: Sample, lines: list[bytes]) -> bool:
    """Whether one line of the page has this name and this value."""
    name = sample.name.encode()
    return any(
        line.startswith((name + b" ", name + b"{", name + b"\t"))
        and any(same(word, sample.value) for word in line.split())
        for line in lines
    )


def same(word: bytes, value: float) -> bool:
    try:
        return repr(float(word)) == repr(value)
    except ValueError:
        return False


@settings(max_examples=1000)
@given(st.lists(mutated(), min_size=1, max_size=3))
def test_a_mutated_page_never_raises_and_never_invents_a_series(bodies: list[bytes]) -> None:
    parser, memory = Parser(vllm.NAMES, vllm.PLAIN), vllm.Memory()
    for body in bodies:
        samples = parser.parse(body)
        if isinstance(samples, Problem):
            assert samples.text
            continue
        lines = body.split(b"\n")
        assert len(samples) <= len(lines)
        assert all(stands_on(sample, lines) for sample in samples)
        reading, memory = vllm.read(samples, memory)
        for engine in reading.engines:
            if engine.used_blocks is not None and engine.pool_blocks is not None:
                assert 0 <= engine.used_blocks <= engine.pool_blocks + 1


@settings(max_examples=500)
@given(st.binary(max_size=300), st.sampled_from((b"", b"vllm:kv_cache_usage_perc", b'{engine="')))
def test_bytes_of_any_kind_never_raise(junk: bytes, start: bytes) -> None:
    body = b"vllm:kv_cache_usage_perc 0.5\n" + start + junk + b"\n"
    samples = WANTED.parse(body)
    if not isinstance(samples, Problem):
        lines = body.split(b"\n")
        assert all(stands_on(sample, lines) for sample in samples)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)


@settings(max_examples=500)
@given(st.dictionaries(st.from_regex(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,9}", fullmatch=True), TEXT))
def test_labels_that_were_rendered_are_read_back(labels: dict[str, str]) -> None:
    block = ",".join(f'{name}="{escape(value)}"' for name, value in labels.items())
    line = f"vllm:kv_cache_usage_perc{{{block}}} 0.5\n"
    [sample] = WANTED.parse(line.encode())
    assert sample == Sample(
        "vllm:kv_cache_usage_perc", {k: bounded(v) for k, v in labels.items()}, 0.5
    )
    [family] = text_format.text_string_to_metric_families(line)
    assert family.samples[0].labels == labels


def bounded(value: str) -> str:
    control = {*range(0x20), *range(0x7F, 0xA0)}
    clean = "".join(" " if ord(c) in control else c for c in value)
    return clean[:MAX_LABEL_VALUE_CHARACTERS]
