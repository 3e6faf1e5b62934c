"""The figures as tables in Markdown. Their places in the document are from <!-- figures: NAME --> to <!-- end -->."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Rows = Sequence[dict[str, Any]]


def tables(sections: Mapping[str, Rows]) -> dict[str, str]:
    """A table for each name of a place in the document."""
    made: dict[str, str] = {}
    for name, rows in sections.items():
        made |= TABLES[name](rows)
    return made


def replace_in(document: Path, made: dict[str, str]) -> None:
    """Put tables into their places; those without one are left out."""
    text = document.read_text("utf-8")
    for name, table in made.items():
        head, tail = f"<!-- figures: {name} -->\n", "<!-- end -->"
        start = text.find(head)
        if start >= 0:
            stop = text.index(tail, start)
            text = f"{text[:start]}{head}{table}\n{text[stop:]}"
    document.write_text(text, "utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio(rows: Sequence[Any]) -> str:
    """Geometric mean over settings of paired ratios, each a list by load of a list by seed; its standard error."""
    logs = np.log(np.array(rows, float))
    by_seed = np.exp(logs.reshape(-1, logs.shape[-1]).mean(axis=0))
    error = by_seed.std(ddof=1) / len(by_seed) ** 0.5 if len(by_seed) > 1 else 0.0
    return f"{np.exp(logs.mean()):.3f} ± {error:.3f}"


def by_load(rows: Sequence[Any]) -> list[str]:
    """The means at each load."""
    logs = np.log(np.array(rows, float))
    return [f"{np.exp(logs[:, at].mean()):.3f}" for at in range(logs.shape[1])]


def least(rows: Sequence[Any]) -> str:
    """The worst mean of any setting and load."""
    return f"{np.exp(np.log(np.array(rows, float)).mean(axis=-1)).min():.3f}"


def setting(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["cluster"], "yes" if row["cache"] else "no", row["arrivals"]


def grouped(rows: Rows) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Rows of all traces of one cluster, cache and kind of arrivals."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(setting(row), []).append(row)
    return found


def _bars(rows: Rows) -> dict[str, str]:
    ratios, rates = [], []
    for (cluster, cache, arrivals), group in grouped(rows).items():
        of = [row["ratios"] for row in group]
        bound = f"{np.mean([row['over_bound'] for row in group]):.2f}"
        ratios.append([cluster, cache, arrivals, ratio(of), *by_load(of), least(of), bound])
        if "kept" in group[0]:
            vllm = ratio([[row["vllm_p95"]] for row in group])
            kept = [
                f"{np.exp(np.mean([np.log(row['kept']['flow'] / row['kept'][name]) for row in group])):.2f}"
                for name in ("hexgen:best", "ray", "vllm")
            ]
            rates.append([cluster, cache, *kept, vllm])
    heads = ["cluster", "cache", "arrivals", "ratio", "load 0.6", "0.85", "1.0", "worst cell", "P95 over bound at 0.6"]
    for name, clusters in (("two clusters", ("hetero1", "hetero2")), ("all three", ("hetero1", "hetero2", "mixed12"))):
        both = [row for row in rows if row["cluster"] in clusters]
        for (_, cache, arrivals), group in grouped([{**row, "cluster": name} for row in both]).items():
            of = [row["ratios"] for row in group]
            ratios.append([f"**{name}**", cache, arrivals, ratio(of), *by_load(of), least(of), ""])
    found = {"P95": table(heads, ratios)}
    heads = [
        "cluster",
        "cache",
        "`flow` / `hexgen:best`",
        "/ `ray`",
        "/ `vllm`",
        "P95 of `vllm` / `flow` at `vllm`'s 5U rate",
    ]
    found["rates"] = table(heads, rates)
    return found


def _policies(rows: Rows) -> dict[str, str]:
    lines = []
    for row in rows:
        for name, of in row["policies"].items():
            figures = [f"{of['p50']:.2f}", f"{of['p95']:.2f} ± {of['p95_half']:.2f}", f"{of['p99']:.2f}"]
            shares = [f"{100 * of['attainment']:.1f}", f"{of['goodput']:.4f}", f"{of['kept']:.4f}"]
            lines.append([*setting(row), f"`{name}`", *figures, *shares, f"{of['jain']:.3f}"])
    heads = [
        "cluster",
        "cache",
        "arrivals",
        "policy",
        "P50 U",
        "P95 U",
        "P99 U",
        "in 3U %",
        "goodput /s",
        "rate kept /s",
        "Jain",
    ]
    return {"policies": table(heads, lines)}


def _tenants(rows: Rows) -> dict[str, str]:
    lines = []
    for row in rows:
        for name, of in row["policies"].items():
            tenants = [f"{100 * share:.0f}" for share in of["tenants"].values()]
            lines.append([*setting(row)[:2], f"`{name}`", f"{of['p95']:.2f}", *tenants, f"{of['jain']:.3f}"])
    names = list(next(iter(rows[0]["policies"].values()))["tenants"])
    return {"tenants": table(["cluster", "cache", "policy", "P95 U", *(f"{name} %" for name in names), "Jain"], lines)}


def _named(rows: Rows, key: str) -> dict[tuple[str, str], dict[str, list[Any]]]:
    """Ratios by (cache, arrivals) and name, over clusters and traces."""
    found: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for row in rows:
        of = found.setdefault(setting(row)[1:], {})
        for name, values in row[key].items():
            of.setdefault(name, []).append(values)
    return found


def _parts(rows: Rows) -> dict[str, str]:
    attainment = _named(rows, "attainment")
    lines = []
    for place, names in _named(rows, "ratios").items():
        for name, of in names.items():
            met = 100 * float(np.mean(attainment[place][name]))
            lines.append([*place, name, ratio(of), *by_load(of), f"{met:.1f}"])
    return {"parts": table(["cache", "arrivals", "`flow`", "ratio", "load 0.6", "0.85", "1.0", "in 3U %"], lines)}


def _paper(rows: Rows) -> dict[str, str]:
    lines = [
        [f"`{name}`" if "alpha" not in name else name, ratio(of), *by_load(of)]
        for names in _named(rows, "ratios").values()
        for name, of in names.items()
    ]
    return {"paper": table(["policy", "P95 over `hexgen:best`", "load 0.6", "0.85", "1.0"], lines)}


def _hardship(rows: Rows) -> dict[str, str]:
    groups: dict[tuple[str, ...], list[Any]] = {}
    for row in rows:
        what = f"profiles off by up to {100 * row['error']:.0f} %" if row["error"] else f"KV room x {row['kv']:g}"
        groups.setdefault((what, setting(row)[1]), []).append(row["ratios"])
    lines = [[*key, ratio(of), *by_load(of), least(of)] for key, of in groups.items()]
    return {"hardship": table(["what", "cache", "ratio", "load 0.6", "0.85", "1.0", "worst cell"], lines)}


TABLES = {
    "bars": _bars,
    "policies": _policies,
    "tenants": _tenants,
    "parts": _parts,
    "paper": _paper,
    "hardship": _hardship,
}
