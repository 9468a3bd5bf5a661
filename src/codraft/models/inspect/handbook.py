"""The page of all findings, docs/findings.md. Written anew by `python -m codraft.models.inspect.handbook`."""

from codraft.models.inspect.catalog import MODULES

HEAD = """# Findings of `codraft inspect`

Written by `python -m codraft.models.inspect.handbook` from the rules in `src/codraft/models/inspect/`; a test compares.

* **error**: it cannot work, or nothing is accepted whatever the text. Exit code 1.
* **warning**: it may work and lose, or it depends on the engine.
* **note**: a fact that explains figures seen later.

"Seen" names public reports of the trouble, as OWNER/REPO#NUMBER.
"""


def page() -> str:
    """All rules as Markdown, by the module that checks them."""
    parts = [HEAD]
    for module in MODULES:
        parts.append(f"\n## {(module.__doc__ or '').splitlines()[0]}\n")
        for rule in module.RULES:
            seen = f" Seen: {rule.seen}." if rule.seen else ""
            varies = f" ({rule.varies})" if rule.varies else ""
            lines = f"*{rule.severity}*{varies}: **{rule.title}.** {rule.consequence} *Do:* {rule.fix}{seen}"
            parts.append(f"\n### {rule.code}\n\n{lines}\n")
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
