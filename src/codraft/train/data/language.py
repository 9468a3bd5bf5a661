"""A guess at the language of a text: its script first, then common words of languages in Latin letters.

Meant for the mix of a data set, not for a text: what is short, mixed, code or arithmetic is `other`, as is every
language that is not listed here.
"""

import re
from collections import Counter
from collections.abc import Iterable

# Inclusive ranges of code points. Kana makes a text Japanese however many Chinese characters it holds.
SCRIPTS = {
    "ja": ((0x3041, 0x30FF), (0x31F0, 0x31FF)),
    "ko": ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7AF)),
    "zh": ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF)),
    "cyrillic": ((0x0400, 0x052F),),
    "arabic": ((0x0600, 0x06FF), (0x0750, 0x077F)),
    "hi": ((0x0900, 0x097F),),
    "bn": ((0x0980, 0x09FF),),
    "th": ((0x0E00, 0x0E7F),),
    "el": ((0x0370, 0x03FF),),
    "he": ((0x0590, 0x05FF),),
    "latin": ((0x0041, 0x005A), (0x0061, 0x007A), (0x00C0, 0x024F), (0x1E00, 0x1EFF)),
}
# Letters that one language of a script has and its commonest does not.
CYRILLIC_UK = frozenset("іїєґІЇЄҐ")
ARABIC_FA = frozenset("پچژگ")
# Chinese characters in a text of Chinese, per kana in one of Japanese, at the most.
HAN_PER_KANA = 10
# A script counts where it makes up this share of the letters; a text needs so many letters.
SHARE = 0.6
LEAST_LETTERS = 4
# Words that are frequent in one of these languages, and not in the others.
WORDS = {
    "en": "the and is are was what how you your with for this that of to from which who why can does write my me it",
    "de": "der die das und ist nicht ein eine wie ich sie mit auf für zu den dem von was wird sind kann auch",
    "fr": "le la les et est une des pour dans que qui vous avec sur pas je ce comment du au sont il elle",
    "es": "el los las y es una por para con que qué cómo del como su se está más al son lo puede",
    "it": "il gli è che di per una con non sono come della del più nel questo cosa anche si alla",
    "pt": "o os as é um uma para com não que em do da dos como por mais se você são ao na no",
    "nl": "het een van en is niet dat op met voor zijn te hoe ik wat deze naar ook kan aan wordt",
    "pl": "i w na się jest nie że do to z jak czy co od po dla przez są o",
    "tr": "ve bir bu için ne ile olarak da de mi çok daha en olan var gibi",
    "vi": "và là của có không được cho một các trong người những này với tôi như",
    "id": "yang dan di dengan untuk ini itu dari tidak adalah pada apa saya bagaimana akan dalam",
    "sv": "och att det är som en på för inte med av jag har den hur ett till vad kan",
}
STOPWORDS = {language: frozenset(words.split()) for language, words in WORDS.items()}
# Common words of the best language: at least so many, this share of all words, and so much more than the second.
LEAST_HITS = 2
LEAST_SHARE = 0.12
LEAD = 1.25
# Characters looked at: enough to tell.
REACH = 2000
WORD = re.compile(r"[^\W\d_]+")


def language_of(text: str) -> str:
    """A two-letter code, or `other` where it is not clear."""
    scripts = Counter(name for c in text[:REACH] if (name := script_of(ord(c))) is not None)
    letters = sum(scripts.values())
    if letters < LEAST_LETTERS:
        return "other"
    if scripts["ja"] * HAN_PER_KANA >= scripts["zh"] and scripts["ja"]:
        scripts["ja"] += scripts.pop("zh", 0)
    script, count = scripts.most_common(1)[0]
    if count < SHARE * letters:
        return "other"
    if script == "cyrillic":
        return "uk" if CYRILLIC_UK.intersection(text) else "ru"
    if script == "arabic":
        return "fa" if ARABIC_FA.intersection(text) else "ar"
    return latin_language(text[:REACH]) if script == "latin" else script


def script_of(code: int) -> str | None:
    """The script of a letter, None for digits, signs and scripts that are not listed."""
    return next((n for n, ranges in SCRIPTS.items() if any(low <= code <= high for low, high in ranges)), None)


def latin_language(text: str) -> str:
    """By common words."""
    words = WORD.findall(text.lower())
    hits = Counter({language: sum(word in known for word in words) for language, known in STOPWORDS.items()})
    (best, most), (_, second) = hits.most_common(2)
    clear = most >= LEAST_HITS and most >= LEAST_SHARE * len(words) and most >= LEAD * second
    return best if clear else "other"


def mix(texts: Iterable[str]) -> dict[str, int]:
    """Texts by language, the commonest first."""
    return dict(Counter(map(language_of, texts)).most_common())
