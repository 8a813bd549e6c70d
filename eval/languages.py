"""SQuAD's normal form of answers for languages other than English.

Steps, in SQuAD's order: lower case, delete punctuation, articles to a space, collapse white space. What differs by
language, and whose convention it is:

- Punctuation: Unicode's categories P*, with the rest of ASCII's signs ($ + < = > ^ ` | ~), as MLQA and XQuAD's
  descendants delete them. Other symbols (S*: €, °, ©) stay: SQuAD tells "£5" from "5", and so does this.
- Lower case is `str.lower`, as in all of these scripts; `casefold` would also make ß into ss, which none does.
- Articles of de, es, vi and ar are MLQA's, its oddities included: vi has words that are no articles, and ar loses every
  "ال", also within words. nl, sv, da, no, pt and hu are MKQA's. fr and it are MKQA's too, but for what is wrong there:
  words are removed whole ("le" not from "lemon"), elided articles (l'eau) before their apostrophe is deleted, and the
  prepositions de and d' stay. The rest is our own.
- Tokens of zh, ja, th, lo, km and my, whose words are not spaced, are characters (with their combining marks) for what
  is written in these scripts and words for the rest: "iPhone手机" has 3. MLQA does so for zh, MKQA for zh, ja, th and km
  (there also Latin letters, which we keep together). Korean keeps its spaced words, as in MKQA and TyDi QA.
- Ours alone: text is brought to NFC, so that composed and decomposed accents agree. And an answer of which nothing is
  left, such as an article asked for by a question, keeps its articles, or its punctuation when it has nothing else: it
  would equal every other such answer.

English is not done here but in `eval.metrics`: exactly SQuAD's script, with ASCII punctuation alone and without NFC.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable

import regex  # type: ignore[import-untyped]

from eval.errors import EvalError

_ARTICLES = {
    "ar": "ال",
    "ca": "el la els les un una uns unes",
    "da": "en et",
    "de": "ein eine einen einem eines einer der die das den dem des",
    "el": "ο η το οι τα του της των τον τη την τους τις ένας μία μια ένα ενός μιας έναν",  # noqa: RUF001
    "es": "un una unos unas el la los las",
    "fr": "le la les un une des du",
    "gl": "o a os as un unha uns unhas",
    "hu": "a az egy",
    "it": "il lo la i gli le un uno una del dello della dei degli delle",
    "nb": "en et ei",
    "nl": "de het een des der den",
    "nn": "ein eit ei",
    "no": "en et ei",
    "pt": "o a os as um uma uns umas",
    "ro": "un o",
    "sv": "en ett",
    "vi": "của là cái chiếc những",
}
_ELIDED = {"ca": "l", "fr": "l", "it": "l un dell gl degl"}
_WITHOUT_ARTICLES = "bg bn cs et fa fi he hi hr id is ja km ko lo lt lv ms my pl ru sk sl sr sw ta te th tr uk ur yo zh"
_CHARACTERS = frozenset({"ja", "km", "lo", "my", "th", "zh"})
# The two long-vowel signs belong to katakana, though Unicode calls them common to several scripts.
_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\uff70\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_PIECE = regex.compile(rf"[{_SCRIPTS}]\p{{M}}*|[^{_SCRIPTS}]+")
_DPR_PIECE = regex.compile(
    rf"[{_SCRIPTS}]\p{{M}}*|[[\p{{L}}\p{{N}}\p{{M}}]--[{_SCRIPTS}]]+|[^\p{{Z}}\p{{C}}]", regex.VERSION1
)

LANGUAGES: tuple[str, ...] = tuple(sorted({"en", *_ARTICLES, *_WITHOUT_ARTICLES.split()}))


def language(code: str) -> str:
    """The two-letter code without country and script ("pt-BR", "zh_Hans": "pt", "zh"); "" is English.

    Raises:
        EvalError: No such language is known here; the message lists those that are.
    """
    base = re.split("[-_]", code.strip().lower())[0] if code else "en"
    if base not in LANGUAGES:
        raise EvalError(f"there is no normal form for language {code!r}: use one of {', '.join(LANGUAGES)}")
    return base


def normaliser(code: str) -> Callable[[str], str]:
    """The normal form of a language other than English, as this module's docstring says.

    Its tokens are what stands between its spaces; it is empty only for blank text.

    Args:
        code: As `language` returns it.
    """
    articles = _article_pattern(code)
    elided = re.compile(rf"\b({'|'.join(_ELIDED[code].split())})['’ʼ](?=\w)") if code in _ELIDED else None  # noqa: RUF001
    split = _pieces if code in _CHARACTERS else str.split

    def normalise(text: str) -> str:
        lower = unicodedata.normalize("NFC", text.lower())
        bare = _delete_punctuation(elided.sub(" ", lower) if elided else lower)
        whole = _delete_punctuation(lower)
        for candidate in (articles.sub(" ", bare) if articles else bare, whole, lower):
            if tokens := split(candidate):
                return " ".join(tokens)
        return ""

    return normalise


def passage_tokens(code: str) -> regex.Pattern[str] | None:
    """How to cut text where DPR's tokens don't fit, for its words aren't spaced; None where they do.

    Args:
        code: As `language` returns it.
    """
    return _DPR_PIECE if code in _CHARACTERS else None


def _article_pattern(code: str) -> re.Pattern[str] | None:
    if code not in _ARTICLES:
        return None
    words = "|".join(_ARTICLES[code].split())
    return re.compile(words if code == "ar" else rf"\b({words})\b")


def _delete_punctuation(text: str) -> str:
    return "".join(char for char in text if char not in string.punctuation and unicodedata.category(char)[0] != "P")


def _pieces(text: str) -> list[str]:
    return [piece for word in text.split() for piece in _PIECE.findall(word)]
