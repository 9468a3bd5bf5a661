"""Figures that people bring, with a known decision at two loads."""

from pathlib import Path

AL = """\
drafter,D,AL,AL_low,AL_high,domain
ngram,1,1.25,1.1,1.4,
ngram,2,1.4,1.2,1.6,all
ngram,2,1.9,,,maths
[/b] deep,2,2.5,,,
"""
# At B = 1 ngram gains 1.4 / 1.12 = 1.25 with D = 2; at B = 4 nobody gains. `deep` drafts too slowly everywhere.
STEPS = """\
B,S,D,t_verif_s,t_sys_s,drafter,t_draft_s
1,256,0,0.9,0.1,,
1,256,1,0.98,0.1,ngram,0
1,256,2,1.02,0.1,ngram,0
1,256,2,1.02,0.1,[/b] deep,1.88
4,256,0,1.9,0.1,,
4,256,1,3.9,0.1,ngram,0
4,256,2,5.9,0.1,ngram,0
4,256,2,5.9,0.1,[/b] deep,4
"""
FLAGS = ["--acceptance", "al.csv", "--timing", "steps.csv"]


def bring(folder: Path) -> None:
    """Write both files."""
    (folder / "al.csv").write_text(AL, encoding="utf-8")
    (folder / "steps.csv").write_text(STEPS, encoding="utf-8")
