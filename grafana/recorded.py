"""A recording as the past of a Prometheus: what `record` wrote, judged and exposed as it happened.

`python -m grafana.recorded RECORDING OUT.om` prints the time of the last sample, Unix seconds.
"""

from __future__ import annotations

from pathlib import Path

import click

from grafana.story import stamped
from kvcache_exporter.analyze import pages
from kvcache_exporter.analyze.replay import replay
from kvcache_exporter.expose import render
from kvcache_exporter.model import (
    EngineStatus,
    GpuSourceReading,
    Judgement,
    Observation,
    Snapshot,
    Target,
    TargetStatus,
)


def snapshot(seen: Observation, judgement: Judgement) -> Snapshot:
    """Put one step of a replay into the shape that the exporter exposes."""
    target = TargetStatus(Target(seen.target, ""), seen.reading is not None, seen.time, None)
    uuids = tuple(gpu.uuid for gpu in seen.gpus)
    engine = EngineStatus(seen.target, seen.engine, (), seen.reading, judgement, uuids)
    up, count = bool(seen.gpus), len(seen.gpus)
    sources = (GpuSourceReading("recording", seen.time, up, seen.gpus, count),) if up else ()
    return Snapshot(seen.time, 0.0, (target,), (engine,), sources, seen.gpus)


@click.command()
@click.argument("recording", type=click.Path(exists=True, path_type=Path))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--job", default="kvcache-exporter", show_default=True)
@click.option("--instance", default="recording:10158", show_default=True)
def main(recording: Path, out: Path, job: str, instance: str) -> None:
    """Write a recording as the past of a Prometheus."""
    scraped_from = f'job="{job}",instance="{instance}"'
    moments = [0.0]
    with out.open("w") as file:

        def write(seen: Observation, judgement: Judgement) -> None:
            moments[0] = seen.time
            page = render(snapshot(seen, judgement)).decode()
            file.write(stamped(seen.time, page, scraped_from))

        replay(pages.frames(recording), watch=write)
        file.write("# EOF\n")
    click.echo(f"{moments[0]:.3f}")


if __name__ == "__main__":
    main()
