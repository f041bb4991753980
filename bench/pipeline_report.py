#!/usr/bin/env python3
"""The result of `fcapd-bench pipeline --json` (its last line) as a table in bench/README.md, between
its two marks, and as a chart: pipeline_report.py --result FILE --readme FILE --chart FILE
[--load N] [--options TEXT] [--commit ID]."""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys

BEGIN = "<!-- fcapd-bench pipeline: begin -->"
END = "<!-- fcapd-bench pipeline: end -->"
TARGETS = {"cpu": 30, "freshness": 100, "expiry_lateness": 250}
STAGES = [("read", "read, decode, count"), ("expire", "expire"), ("push", "build values"),
          ("redis", "Redis I/O"), ("commit", "encode commits")]
COLORS = ["#4878a8", "#e0995e", "#6aa56a", "#c06060", "#8a78b0", "#9a9a9a", "#b8a050", "#707070"]


def output_of(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = re.findall(r"model name\s*: (.*)", file.read())
    with open("/proc/meminfo", encoding="utf-8") as file:
        kib = int(re.search(r"MemTotal:\s*(\d+)", file.read()).group(1))
    system = ""
    if os.path.exists("/etc/os-release"):
        with open("/etc/os-release", encoding="utf-8") as file:
            system = re.search(r'PRETTY_NAME="?([^"\n]*)', file.read()).group(1) + ", "
    redis = re.search(r"v=(\S+)", output_of("redis-server", "--version"))
    return (f"{len(names)} cores ({names[0] if names else 'unknown'}), {kib / 1048576:.0f} GiB, "
            f"{system}librdkafka {output_of('pkg-config', '--modversion', 'rdkafka')}, "
            f"Redis {redis.group(1) if redis else 'unknown'}, "
            f"RocksDB {output_of('pkg-config', '--modversion', 'rocksdb') or 'of the system'}")


def delay(value):
    return "–" if value < 0 else f"{value:.0f}"


def row_of(row):
    return (f"| {row['name']} | {row['events_per_second']:,.0f} "
            f"| {row['daemon_cpu_us_per_event']:.1f} | {row['cpu_us_worker']:.1f} "
            f"| {row['cpu_us_kafka']:.1f} | {row['cpu_us_store']:.1f} | {row['cpu_us_other']:.1f} "
            f"| {row['redis_writes_per_event']:.2f} | {row['expiries_per_event']:.2f} "
            f"| {delay(row['freshness_ms_p50'])} / {delay(row['freshness_ms_p99'])} / "
            f"{delay(row['freshness_ms_p999'])} "
            f"| {delay(row['expiry_lateness_ms_p50'])} / {delay(row['expiry_lateness_ms_p99'])} / "
            f"{delay(row['expiry_lateness_ms_p999'])} "
            f"| {row['redis_cpu_us_per_event']:.1f} | {row['broker_cpu_us_per_event']:.1f} "
            f"| {row['producer_cpu_us_per_event']:.1f} |\n")


def table_of(result, arguments):
    moment = datetime.datetime.fromtimestamp(os.path.getmtime(arguments.result),
                                             datetime.timezone.utc)
    day = moment.strftime("%Y-%m-%d %H:%M UTC")
    commit = arguments.commit or output_of("git", "-C", os.path.dirname(os.path.abspath(arguments.readme)), "rev-parse",
                       "--short", "HEAD")
    note = "" if arguments.load < 0.5 else (
        f" **Taken under load** (load average {arguments.load} before the run): delays say more "
        "about the neighbours than about fcapd.")
    text = (f"{day}, commit {commit}, `sh bench/pipeline.sh{' ' if arguments.options else ''}"
            f"{arguments.options}`; {machine()}. Daemon, broker, Redis and producer share the "
            f"cores.{note}\n\n"
            "| | events/s | daemon CPU µs/event | worker | Kafka threads | RocksDB threads | others "
            "| Redis writes/event | expiries/event | freshness ms p50 / p99 / p99.9 "
            "| expiry lateness ms p50 / p99 / p99.9 | Redis CPU µs/event | broker CPU µs/event "
            "| producer CPU µs/event |\n"
            + "| --- " * 14 + "|\n")
    for row in result["rows"]:
        text += row_of(row)
    text += "\nThe worker's thread by stage, CPU µs an event:\n\n| |"
    text += "".join(f" {name} |" for _, name in STAGES) + "\n| --- " + "| --- " * len(STAGES) + "|\n"
    for row in result["rows"]:
        text += f"| {row['name']} |"
        text += "".join(f" {row.get('stage_us_' + key, 0):.2f} |" for key, _ in STAGES) + "\n"
    text += (f"\n{result['events']:,} events in all; {result['keys_compared']:,} keys compared "
             f"while they were there, {result['keys_absent']:,} absent ones, "
             f"**{result['mismatches']} differ**.\n\n")
    for name, key, target, unit in (
            ("CPU of the daemon, everything in", "daemon_cpu_us_per_event", TARGETS["cpu"], "µs"),
            ("freshness p99 at half of the drained rate", "freshness_ms_p99",
             TARGETS["freshness"], "ms"),
            ("expiry lateness p99 at half of the drained rate", "expiry_lateness_ms_p99",
             TARGETS["expiry_lateness"], "ms")):
        word = "met" if 0 <= result[key] <= target else "**missed**"
        text += f"- {name}: {result[key]:g} {unit}, target {target} {unit}: {word}\n"
    return text + "\n![CPU and delays](pipeline.svg)\n"


# --- the chart -----------------------------------------------------------------------------------

def bars_of_cpu(rows, left, top, width, height):
    parts = [("stage_us_" + key, name) for key, name in STAGES]
    parts += [("cpu_us_kafka", "Kafka threads"), ("cpu_us_store", "RocksDB threads"),
              ("cpu_us_other", "others")]
    most = max(max(row["daemon_cpu_us_per_event"] for row in rows) * 1.15, 1)
    svg = [f'<text x="{left}" y="{top - 26}" class="h">Daemon CPU, µs an event</text>']
    step = width / len(rows)
    for at, row in enumerate(rows):
        x = left + at * step + step * 0.15
        y = top + height
        for color, (key, _) in zip(COLORS, parts):
            size = row.get(key, 0) / most * height
            y -= size
            svg.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.7:.1f}" '
                       f'height="{size:.1f}" fill="{color}"/>')
        svg.append(f'<text x="{x + step * 0.35:.1f}" y="{y - 5:.1f}" class="c">'
                   f'{row["daemon_cpu_us_per_event"]:.1f}</text>')
        svg.append(f'<text x="{x + step * 0.35:.1f}" y="{top + height + 16}" class="c">'
                   f'{row["name"]}</text>')
    for at, (color, (_, name)) in enumerate(zip(COLORS, parts)):
        x = left + at % 4 * width / 4
        y = top + height + 36 + at // 4 * 18
        svg.append(f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="10" height="10" fill="{color}"/>'
                   f'<text x="{x + 14:.0f}" y="{y:.0f}">{name}</text>')
    return svg


def lines_of_delays(rows, title, key, target, left, top, width, height):
    rows = [row for row in rows if row["name"].startswith("rate")]
    most = max([target] + [row[key + "_ms_p999"] for row in rows]) * 1.15
    svg = [f'<text x="{left}" y="{top - 26}" class="h">{title}, ms</text>']
    y = top + height - target / most * height
    svg.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" class="t"/>'
               f'<text x="{left + width}" y="{y - 4:.1f}" class="r">target p99 {target}</text>')
    step = width / max(len(rows), 1)
    for at, row in enumerate(rows):
        for part, (suffix, color) in enumerate((("p50", COLORS[2]), ("p99", COLORS[0]),
                                                ("p999", COLORS[5]))):
            value = row[f"{key}_ms_{suffix}"]
            size = max(value, 0) / most * height
            x = left + at * step + step * (0.1 + part * 0.27)
            svg.append(f'<rect x="{x:.1f}" y="{top + height - size:.1f}" '
                       f'width="{step * 0.24:.1f}" height="{size:.1f}" fill="{color}"/>'
                       f'<text x="{x + step * 0.12:.1f}" y="{top + height - size - 4:.1f}" '
                       f'class="c">{delay(value)}</text>')
        svg.append(f'<text x="{left + (at + 0.5) * step:.1f}" y="{top + height + 16}" class="c">'
                   f'{row["name"]}: {row["events_per_second"]:,.0f}/s</text>')
    for at, (name, color) in enumerate((("p50", COLORS[2]), ("p99", COLORS[0]),
                                        ("p99.9", COLORS[5]))):
        x = left + at * 60
        svg.append(f'<rect x="{x}" y="{top + height + 27}" width="10" height="10" fill="{color}"/>'
                   f'<text x="{x + 14}" y="{top + height + 36}">{name}</text>')
    return svg


def chart_of(result):
    rows = result["rows"]
    svg = ['<svg xmlns="http://www.w3.org/2000/svg" width="860" height="660" '
           'font-family="sans-serif" font-size="12"><style>.h{font-size:15px;font-weight:bold}'
           '.c{text-anchor:middle}.r{text-anchor:end}.t{stroke:#c00;stroke-dasharray:4 3}</style>'
           '<rect width="860" height="660" fill="#fff"/>']
    svg += bars_of_cpu(rows, 40, 60, 780, 220)
    svg += lines_of_delays(rows, "Freshness", "freshness", TARGETS["freshness"], 40, 400, 360, 180)
    svg += lines_of_delays(rows, "Expiry lateness", "expiry_lateness", TARGETS["expiry_lateness"],
                           460, 400, 360, 180)
    return "\n".join(svg) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result", required=True)
    parser.add_argument("--readme", required=True)
    parser.add_argument("--chart", required=True)
    parser.add_argument("--load", type=float, default=0)
    parser.add_argument("--options", default="")
    parser.add_argument("--commit", default="")
    arguments = parser.parse_args()
    with open(arguments.result, encoding="utf-8") as file:
        result = json.loads(file.read().strip().splitlines()[-1])
    with open(arguments.readme, encoding="utf-8") as file:
        text = file.read()
    if BEGIN not in text or END not in text:
        sys.exit(f"{arguments.readme}: the marks {BEGIN} and {END} are not there")
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    with open(arguments.readme, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + table_of(result, arguments) + END + tail)
    with open(arguments.chart, "w", encoding="utf-8") as file:
        file.write(chart_of(result))


if __name__ == "__main__":
    main()
