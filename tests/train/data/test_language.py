"""The guess at a language: right on plain sentences, silent where it cannot know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.train.data.language import language_of, mix

SENTENCES = {
    "en": "What is the best way to learn how to swim, and how long does it take?",
    "de": "Wie kann ich das Fahrrad reparieren, wenn die Kette nicht auf dem Rad sitzt?",
    "fr": "Comment est-ce que je peux apprendre le piano dans une ville sans professeur?",
    "es": "¿Cómo se prepara una tortilla para cuatro personas con los huevos que hay?",
    "it": "Che cosa è la fotosintesi e come viene usata dalle piante per gli zuccheri?",
    "pt": "Como você faz um bolo de chocolate com os ingredientes que não são caros?",
    "nl": "Hoe kan ik het beste een fiets kopen die niet te duur is voor een student?",
    "pl": "Jak się nazywa to miasto w Polsce, które jest na wybrzeżu, i czy warto tam pojechać?",
    "tr": "Bu yemek için ne kadar su gerekir ve daha sonra bir tencere var mi?",
    "vi": "Làm thế nào để học tiếng Anh cho người mới và không có nhiều thời gian?",
    "ru": "Какой город является столицей России?",
    "uk": "Яке місто є столицею України та де її центр?",
    "zh": "中国最长的河流是哪一条、请解释一下。",
    "ja": "日本で一番高い山は何ですか。",
    "ko": "한국의 수도는 어디입니까?",
    "ar": "ما هي عاصمة مصر؟",
    "hi": "भारत की राजधानी क्या है?",
    "th": "เมืองหลวงของประเทศไทยคืออะไร",
    "el": "Ποια είναι η πρωτεύουσα της Ελλάδας;",
    "he": "מהי בירת ישראל?",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_plain_sentence_is_known(language: str) -> None:
    assert language_of(SENTENCES[language]) == language


@pytest.mark.parametrize("text", ["", "12 + 30 = ?", "def f(x): return x * 2", "ok", "Paris", "日 Hello there 本"])
def test_what_is_too_little_to_tell_is_other(text: str) -> None:
    assert language_of(text) == "other"


@given(st.lists(st.text(max_size=30), max_size=8))
def test_every_text_is_counted_once(texts: list[str]) -> None:
    assert sum(mix(texts).values()) == len(texts)
