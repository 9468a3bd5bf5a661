"""Numbers as text."""

import pytest

from codraft.report.words import flops, listing, load, plural, rate, seconds, signed_percent, size


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (seconds(0.0946), "94.6 ms"),
        (seconds(2.34e-5), "23.4 \u00b5s"),
        (seconds(12.0), "12.0 s"),
        (seconds(0.0), "0 \u00b5s"),
        (rate(1234.5), "1,234 tokens/s"),
        (rate(0.0123), "0.0123 tokens/s"),
        (size(25276063744), "25.3 GB"),
        (size(12), "12 bytes"),
        (flops(1.1e11), "110 GFLOP/s"),
        (signed_percent(-0.03), "\u22123 %"),
        (plural(1, "prompt"), "1 prompt"),
        (plural(2.5, "prompt"), "2.5 prompts"),
        (load(1, 200), "B = 1 sequence, S = 200 tokens"),
        (listing([]), ""),
        (listing(["a", "b", "c"]), "a, b and c"),
    ],
)
def test_numbers_carry_their_unit(made: str, text: str) -> None:
    assert made.replace("\u00a0", " ") == text
