"""Answers in other languages: the published scripts' values, and what must hold for every language."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.errors import EvalError
from eval.languages import LANGUAGES, language, normaliser
from eval.metrics import (
    contains_match,
    exact_match,
    f1,
    get_rule,
    has_answer,
    normalise_squad,
    rule_with_language,
    score_answer,
)

OTHERS = [code for code in LANGUAGES if code != "en"]


@given(st.text())
def test_english_is_squads_own_rule_for_any_text(text: str) -> None:
    assert get_rule("squad:en").normalise(text) == get_rule("squad:en-GB").normalise(text) == normalise_squad(text)


def test_english_keeps_the_name_of_the_published_rule() -> None:
    assert get_rule("squad:en") is get_rule("squad")


@pytest.mark.parametrize(
    ("lang", "prediction", "gold", "same"),
    [
        ("de", "Der Bundestag", "den Bundestag!", True),
        ("de", "die Straße", "STRASSE", False),  # lower case, not case folding
        ("de", "the Bundestag", "Bundestag", False),  # only the language's own articles
        ("de", "„Faust“", "Faust", True),
        ("de", "12–14", "12-14", True),
        ("de", "€5", "5", False),
        ("de", "$5", "5", True),
        ("es", "¿La Habana?", "habana", True),
        ("es", "unos años", "años", True),
        ("fr", "l'été", "Été", True),
        ("fr", "l\u2019\u00e9te\u0301", "été", True),  # typographic apostrophe, half decomposed
        ("fr", "« Les Misérables »", "misérables", True),
        ("fr", "lemon", "mon", False),  # "le" is a word of its own
        ("fr", "d'Artagnan", "Artagnan", False),  # a preposition
        ("fr", "aujourd'hui", "aujourdhui", True),
        ("it", "un'altra", "altra", True),
        ("it", "L\u2019Aquila", "Aquila", True),
        ("it", "dell'arte", "arte", True),
        ("it", "I Promessi Sposi", "promessi sposi", True),
        ("pt", "Os Lusíadas", "lusíadas", True),
        ("pt", "a\u0300s", "às", True),  # "a" before a combining accent is no article
        ("pt", "às", "s", False),
        ("nl", "Het Parool", "parool", True),
        ("ca", "l'illa", "illa", True),
        ("sv", "en bok", "bok", True),
        ("da", "et hus", "hus", True),
        ("no", "ei bok", "bok", True),
        ("ro", "un om", "om", True),
        ("el", "ΤΟΥΣ ΝΌΜΟΥΣ", "νόμους", True),
        ("hu", "Az Alföld", "alföld", True),
        ("ar", "الكتاب", "كتاب", True),
        ("ar", "نعم،", "نعم", True),
        ("vi", "cái nhà", "nha\u0300", True),
        ("ru", "«Война и мир»", "война и мир", True),
        ("pl", "a to", "to", False),
        ("fi", "Se", "", False),
        ("tr", "bir kedi", "kedi", False),
        ("hi", "भारत।", "भारत", True),
        ("ko", "대한민국.", "\u1103\u1162\u1112\u1161\u11ab\u1106\u1175\u11ab\u1100\u116e\u11a8", True),
        ("ko", "대한 민국", "대한민국", False),
        ("zh", "《红楼梦》", "红楼梦", True),
        ("zh", "北 京", "北京", True),
        ("zh", "iPhone 手机", "iphone手机", True),
        ("ja", "ジョン・スミス", "ジョンスミス", True),
        ("ja", "カ\u3099ラス", "ガラス", True),
        ("th", "กรุงเทพ", "กรุง เทพ", True),
    ],
)
def test_exact_match_by_language(lang: str, prediction: str, gold: str, same: bool) -> None:
    assert exact_match(prediction, [gold], f"squad:{lang}") is same


@pytest.mark.parametrize(
    ("lang", "prediction", "gold", "value"),
    [
        ("zh", "北京市", "北京", 4 / 5),
        ("zh", "iPhone手机", "华为手机", 4 / 7),  # 1 word and 2 characters against 4 characters
        ("zh", "上海", "北京", 0.0),
        ("ja", "ガラスのコップ", "コップ", 3 / 5),
        ("ja", "ハード", "ハド", 4 / 5),  # the long-vowel sign is a character too
        ("th", "กา", "กี", 0.0),  # ก า against the one character กี
        ("ko", "대한민국 서울", "서울", 2 / 3),
        ("ko", "서울시", "서울", 0.0),
        ("de", "die Stadt Wien", "der Stadt", 2 / 3),
        ("hi", "नई दिल्ली", "दिल्ली", 2 / 3),
    ],
)
def test_f1_counts_characters_where_words_are_not_spaced(lang: str, prediction: str, gold: str, value: float) -> None:
    assert f1(prediction, [gold], f"squad:{lang}") == pytest.approx(value)


@settings(max_examples=500, deadline=None)
@given(lang=st.sampled_from(OTHERS), text=st.text(max_size=12))
def test_a_normal_form_is_empty_only_for_blank_text(lang: str, text: str) -> None:
    normal = normaliser(lang)(text)
    assert (normal == "") == (not text.strip())
    assert normal == " ".join(normal.split())


@pytest.mark.parametrize(
    ("lang", "text", "normal"),
    [
        ("es", "La", "la"),
        ("fr", "L'", "l"),
        ("fr", "¿?", "¿?"),
        ("ar", "ال", "ال"),
        ("zh", "。。", "。。"),
        ("hu", "A Az", "a az"),
        ("vi", "Cái là", "cái là"),
        ("de", " ", ""),
    ],
)
def test_an_answer_of_which_nothing_would_be_left_stays(lang: str, text: str, normal: str) -> None:
    assert normaliser(lang)(text) == normal
    if normal:
        assert score_answer(text, [text], f"squad:{lang}").f1 == 1
        assert not exact_match("", [text], f"squad:{lang}")


@settings(max_examples=500, deadline=None)
@given(lang=st.sampled_from(OTHERS), text=st.text(max_size=12))
def test_composed_and_decomposed_text_agree(lang: str, text: str) -> None:
    forms = {normaliser(lang)(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")}
    assert len(forms) == 1


ARTICLES = {
    "es": ["un", "una", "unos", "unas", "el", "la", "los", "las"],
    "de": ["ein", "eine", "einen", "einem", "eines", "einer", "der", "die", "das", "den", "dem", "des"],
    "vi": ["của", "là", "cái", "chiếc", "những"],
    "hi": [],
    "zh": [],
}


def mlqa(text: str, lang: str) -> str:
    """MLQA's published normal form, in other words: signs go, then articles, then tokens are cut."""
    signs = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    left = "".join("" if c in signs or unicodedata.category(c).startswith("P") else c for c in text.lower())
    if lang == "ar":
        return " ".join(left.replace("ال", " ").split())
    if lang == "zh":
        left = re.sub("([\u4e00-\u9fa5])", r" \1 ", left)
    words = re.split(r"(\W+)", left)
    return " ".join("".join(" " if word in ARTICLES[lang] else word for word in words).split())


MIXED = st.lists(
    st.sampled_from([*"!¿.,-«»“’،।。、 $€°`", " ", "un", "La", "las", "Die", "eines", "der", "cái", "là", "nhà", "año"])
    | st.sampled_from(["ال", "الكتاب", "كتاب", "भारत", "Über", "iPhone", "15", "北京", "市", "手机", "İ", "ß"]),
    max_size=8,
).map("".join)


@pytest.mark.parametrize("lang", ["ar", "de", "es", "hi", "vi", "zh"])
@given(MIXED)
def test_normal_forms_of_mlqas_languages_are_mlqas_but_for_empty_ones(lang: str, text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    published = mlqa(text, lang)
    if published and unicodedata.is_normalized("NFC", text.lower()):
        assert normaliser(lang)(text) == published


def test_passages_in_unspaced_scripts_are_searched_by_character() -> None:
    assert has_answer(["北京"], "我住在北京市。", lang="zh")
    assert not has_answer(["北京"], "我住在北京市。")
    assert not has_answer(["京北"], "我住在北京市。", lang="zh")
    assert has_answer(["iPhone手机"], "他买了iphone手机。", lang="zh")
    assert not has_answer(["phone"], "他买了iphone手机。", lang="zh")
    assert has_answer(["ガラス"], "それはカ\u3099ラスです", lang="ja")
    assert not has_answer(["カラス"], "それはガラスです", lang="ja")
    assert has_answer(["กรุงเทพ"], "เขาอยู่ที่กรุงเทพมหานคร", lang="th")
    assert not has_answer(["서울"], "서울시", lang="ko")
    assert has_answer(["Wien"], "in Wien", lang="de") and not has_answer(["Wie"], "in Wien", lang="de")


def test_contains_is_of_characters_where_words_are_not_spaced() -> None:
    assert contains_match("答案是北京市。", ["北京"], "squad:zh")
    assert not contains_match("서울시", ["서울"], "squad:ko")


def test_codes_of_countries_and_scripts_are_left_off() -> None:
    codes = ["pt-BR", "zh_CN", "zh-Hans", "DE", " fr ", ""]
    assert [language(code) for code in codes] == ["pt", "zh", "zh", "de", "fr", "en"]
    rule = get_rule("squad:zh_tw")
    assert (rule.name, rule.lang, rule.f1_style) == ("squad:zh", "zh", "plain")
    assert get_rule("squad:zh") is rule


def test_an_unknown_language_is_refused_with_those_that_are_known() -> None:
    for call in (lambda: get_rule("squad:xx"), lambda: rule_with_language("squad", "xx")):
        with pytest.raises(EvalError, match=r"no normal form for language 'xx': use one of ar, .*de, .*zh$"):
            call()
    with pytest.raises(EvalError, match="'squad:': did you mean 'squad'"):
        get_rule("squad:")


@pytest.mark.parametrize(
    ("rule", "lang", "expected"),
    [
        ("squad", "", "squad"),
        ("squad", "en", "squad"),
        ("squad", "de", "squad:de"),
        ("squad", "pt-BR", "squad:pt"),
        ("squad:fr", "de", "squad:fr"),
        ("hotpotqa", "de", "hotpotqa"),
        ("curatedtrec", "xx", "curatedtrec"),
    ],
)
def test_a_questions_language_picks_the_form_of_squads_rule_alone(rule: str, lang: str, expected: str) -> None:
    assert rule_with_language(rule, lang) == expected
    assert get_rule(expected).name == expected
