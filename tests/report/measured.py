"""Measurements of the sample studies: acceptance and timing, made by hand from a few formulas."""

from typing import Any

from codraft.core.curve import CurvePoint
from codraft.core.provenance import Provenance
from codraft.core.schema import (
    AcceptanceRecord,
    AcceptanceResult,
    AttentionPoint,
    DomainCurve,
    DrafterInfo,
    GemmPoint,
    PromptsInfo,
    TimingPoint,
    TimingRecord,
)

LOADS = ((1, 200), (4, 200))
DEPTHS = range(9)
# How many tokens a drafter would give a step if D had no end, how fast it gets there, and its share of drafted steps.
KINDS = {"ngram": (1.55, 0.62, 0.38), "suffix": (1.85, 0.70, 0.55), "external": (4.80, 0.80, 1.0)}
DRAFT_S = {"ngram": 2e-5, "suffix": 9e-5, "external": 0.0885}


def provenance(*argv: str, **hashes: str) -> Provenance:
    """As every record of the sample states it."""
    return Provenance(
        version="0.1.0",
        git="b3ec2c0",
        machine={
            "system": "Linux",
            "arch": "x86_64",
            "cpu": "AMD EPYC",
            "cores": 2,
            "python": "3.11.2",
            "device": "cpu",
            "memory_bytes": 25276063744,
        },
        engine={"name": "torch", "torch": "2.13.0", "transformers": "5.19.0"},
        dtype="float32",
        seeds=[0],
        input_hashes=dict(hashes),
        time="2026-10-01T12:00:00+00:00",
        command=["codraft", "tune", "demo", *argv],
    )


def curve_point(name: str, D: int, scale: float = 1.0, interval: bool = True) -> CurvePoint:
    """AL(D) that saturates, with an interval that widens with D."""
    top, pace, coverage = KINDS[name]
    AL = 1 + (top - 1) * scale * (1 - pace**D)
    steps = 600
    half = 0.06 * (AL - 1) * (1 + 0.25 * D)
    return CurvePoint(
        D=D,
        AL=AL,
        AL_ci95=(AL - half, AL + half) if interval else None,
        AL_macro=AL + 0.02,
        coverage=coverage,
        steps=steps,
        drafted_steps=round(steps * coverage),
        cut_steps=3,
        accepted=round((AL - 1) * steps),
        drafted=round(steps * coverage) * D,
        counts=[[0] * (D + 1) for _ in range(D + 1)],
        joint=[(AL - 1) / D] * D,
        conditional=[0.5] * D,
    )


def curve(name: str, scale: float = 1.0) -> list[CurvePoint]:
    """AL for D = 1..8."""
    return [curve_point(name, D, scale) for D in DEPTHS if D > 0]


def result(name: str) -> AcceptanceResult:
    """One drafter over all domains; `suffix` also cold; `external` took no step in the longest context."""
    domains = {
        "coding": DomainCurve(num_prompts=4, curve=curve(name, 1.7)),
        "writing": DomainCurve(num_prompts=4, curve=curve(name, 0.5)),
        "summarization": DomainCurve(num_prompts=4, curve=curve(name, 1.1)),
        "context 0..256": DomainCurve(num_prompts=9, curve=curve(name, 0.9)),
        "context 256..512": DomainCurve(num_prompts=5, curve=[] if name == "external" else curve(name, 1.2)),
    }
    options: dict[str, dict[str, Any]] = {
        "ngram": {"n_min": 2, "n_max": 4, "occurrence": "latest"},
        "suffix": {},
        "external": {"draft": "greedy"},
    }
    return AcceptanceResult(
        drafter=DrafterInfo(
            name=name,
            mechanism=name,
            id="demo-noisy" if name == "external" else None,
            options=options[name],
        ),
        basis="steps",
        curve=curve(name),
        cold=curve(name, 0.55) if name == "suffix" else None,
        domains=domains,
        timings_s={"walk": 0.11},
    )


def acceptance() -> AcceptanceRecord:
    """Three drafters on twelve prompts."""
    return AcceptanceRecord(
        schema=AcceptanceRecord.SCHEMA,
        provenance=provenance(inputs="aaaa", streams="bbbb"),
        target="demo",
        prompts=PromptsInfo(
            name="demo:12", sha256="0123456789abcdef" * 4, num_prompts=12, num_conversations=12, template="chat"
        ),
        sampling={"temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0},
        mode="replay",
        max_new_tokens=48,
        stream_tokens=576,
        timings_s={"load": 1.5, "write_streams": 21.0, "drafter_pass": 2.1, "walk": 0.2},
        wall_s=2.4,
        results=[result(name) for name in KINDS],
    )


def verify_s(B: int, D: float) -> float:
    """A pass that hardly grows with D at B = 1, and does at B = 4."""
    return 0.0925 * (1 + 0.018 * D) if B == 1 else 0.1010 * (1 + 0.6 * D)


def timing_point(B: int, S: int, D: int) -> TimingPoint:
    """One timed (B, S, D)."""
    t = verify_s(B, D)
    draft = {name: s * (D if name == "external" else 1) * (1 + 0.1 * B) for name, s in DRAFT_S.items()} if D else {}
    ffn = 0.55 - 0.008 * D
    return TimingPoint(
        B=B,
        S=S,
        D=D,
        x=B * (1 + D),
        t_verif_s=t,
        t_sys_s=0.0021,
        t_draft_s=draft,
        num_samples=21,
        p10=t * 0.98,
        p90=t * 1.05,
        t_sys_spread_s=(0.0019, 0.0026),
        t_draft_spread_s={name: (0.95 * s, 1.1 * s) for name, s in draft.items()} or None,
        shares={"ffn": ffn, "projections": 0.25, "attention": 0.08 + 0.006 * D, "other": 0.12 + 0.002 * D},
    )


def gemm_points() -> list[GemmPoint]:
    """Throughput that doubles with M until it saturates."""
    layers = (("6144x6144", 6144, 6144), ("qkv", 960, 576), ("up and gate", 3072, 576), ("down", 576, 1536))
    points = []
    for layer, n, k in layers:
        for M in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            rate = 1.1e11 * M / (M + 14) * (1 if n == 6144 else 0.82 + n / 20000)
            t = 2 * M * n * k / rate
            points.append(
                GemmPoint(
                    layer=layer, n=n, k=k, M=M, t_s=t, p10=0.97 * t, p90=1.08 * t, num_samples=30, flops_per_s=rate
                )
            )
    return points


def attention_points() -> list[AttentionPoint]:
    """Time that grows with rows and with the cache."""
    points = []
    for S in (200, 1024, 4096):
        for D in DEPTHS:
            rows, t = 3 * (1 + D), 2e-5 + 2.2e-8 * S * (1 + 0.12 * D)
            points.append(
                AttentionPoint(
                    B=1,
                    S=S,
                    D=D,
                    rows=rows,
                    t_s=t,
                    p10=0.96 * t,
                    p90=1.07 * t,
                    num_samples=30,
                    flops_per_s=4 * 9 * 64 * S * (1 + D) / t,
                    bytes_per_s=2 * 4 * 3 * 64 * S / t,
                )
            )
    return points


def timing() -> TimingRecord:
    """Both loads, with kernels."""
    return TimingRecord(
        schema=TimingRecord.SCHEMA,
        provenance=provenance(inputs="cccc", streams="bbbb"),
        target="demo",
        ragged="padded",
        points=[timing_point(B, S, D) for B, S in LOADS for D in DEPTHS],
        gemm=gemm_points(),
        attention=attention_points(),
    )
