"""Numbers that several packages share, each with its source."""

# The co-design article [NVIDIA26]: query rows of its attention kernel's tile; the width of its GEMM figure's layer, and
# the draft lengths of that figure.
ARTICLE_TILE = 128
ARTICLE_WIDTH = 6144
ARTICLE_DEPTHS = (0, 1, 3, 7, 15)
# Our own: below this predicted gain the choice is "off". It would drown in noise, and drafting is never free.
LEAST_GAIN = 1.02
