"""Texts whose token ids distinguish two tokenizers with the same tokens.

Tokenizers with equal tokens differ in how they split a text before they merge, in their merges, in which tokens they
find whole in a text, and in what they put before it. Equal ids for all of these texts are strong evidence that two
tokenizers are equal, not proof: there are more texts than can be tried.
"""

import hashlib
from collections.abc import Iterator, Sequence
from random import Random

_IN_EACH = 16  # tokens of a generated text, each drawn by 4 bytes of a digest
_MOST = 512  # generated texts

# `Vocabulary.text_digest` depends on every character: both ends need the same ones.
FIXED = tuple(
    text
    for texts in (
        # The beginning, spaces, and the character that SentencePiece writes for them
        ("", " ", "  ", "a", " a", "  a", "a ", "a  ", "A", "Hello world", " Hello  world ", "a\u2581b", "\u2581"),
        ("\u2581a",),
        # Digits: one, three or all in a token; those of other scripts; numbers that are no digits
        ("1", "12", "123", "1234", "x = 123456789", "0123456789012345", " 12", "a1b22c333d4444", "1,234.56"),
        ("0x1F 1e-9",),
        ("\u0661\u0662\u0663\u0664", "\uff11\uff12\uff13\uff14", "\u09ea\u09eb\u09ec"),
        ("\u00bd x\u00b2 \u2163 \u2460\u2461",),
        # Contractions, in small and capital letters, and apostrophes
        ("I'll we've they're it's I'm he'd don't", "I'LL WE'VE THEY'RE IT'S", "'s'x 'T 'Re''ll", "it\u2019s I\u2019ll"),
        ("a'b'",),
        # Line breaks, and white space before words and at the end
        ("\n", "\n\n", "\n\n\n\n", "a\nb", "a\n\nb", "a \n b", "a\n  b\n    c\n", "\r\n", "a\r\n\r\nb", " \n \n "),
        ("a \t\n",),
        ("   three", "    four", "       seven", "\t", "\t\ta\t b", f"x{' ' * 16}y", f"x{' ' * 33}y", "\t" * 9),
        ("\n" * 17, " " * 80),
        ("\u00a0a\u00a0", "\u3000a\u3000\u3000b", "\u2003\u2009a", "\u200ba\u200d\ufeffb", "\u2028\u2029"),
        ("\x0b\x0c\x1c\x85",),
        ("\x00a\x00", "\x01\x7f"),
        # Capital letters within words, punctuation, code
        ("camelCaseHTTPServer snake_case kebab-case", "ALLCAPS MiXeD iPhone"),
        ("\u00c9cole \u00e9COLE \u01c5ungla stra\u00dfe",),
        ("!?!...---===>>>", "a.b,c;d:e", "(x)[y]{z}<w>", "!word #tag @name $5 %d ^ & *", "//////// ######## ________"),
        ("\u201cquoted\u201d \u2014 \u2026 \u00ab\u00bb", "\u20ac5 \u00a33 \u00a5"),
        ("https://example.org/a?b=c&d=%20#e",),
        ("def f(x):\n    return x + 1  # done\n", "for (int i=0;i<10;++i){a[i]+=2;}", "SELECT * FROM t WHERE a>='b';"),
        # Scripts: Han, kana, Hangul (also decomposed), rare characters
        ("\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8", "\u4e2d\u6587\u5b57\u7b26\uff0c\u6807\u70b9\u3002"),
        ("\u4e2d a \u6587 1",),
        ("\ud55c\uad6d\uc5b4 \ubb38\uc7a5", "\u1112\u1161\u11ab", "\U00020000\U0002a6d6"),
        # Cyrillic, Greek, Arabic and Hebrew with points, Thai, Devanagari with joiners, Amharic, Georgian
        ("\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440",),
        ("\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u03c2",),
        ("\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627", "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd"),
        ("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",),
        ("\u0928\u092e\u0938\u094d\u0924\u0947 \u0915\u094d\u200d\u0937", "\u12a0\u121b\u122d\u129b \u10d2\u10d0"),
        # What Unicode normalization changes: combining characters, ligatures, letters that are signs
        ("\u00e9 e\u0301 e\u0301\u0323 \u1ec7", "\u212b \u00c5 A\u030a", "\ufb01 \u2126 \u338f \ufdfa"),
        ("a\u0300\u0301\u0302\u0303b",),
        ("\U0001d400\U0001d41b", "\ue000 \uf8ff", "\ufffd", "\uffff", "\U0010ffff", "\U000e0041"),
        # Emoji: joined, flags, skin tones, variants
        ("\U0001f642", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e8\U0001f1ed\U0001f44d\U0001f3fd"),
        ("a\U0001f642b",),
        ("\u2764\ufe0f\u2602 1\ufe0f\u20e3", "\U0001f642 \U0001f642\U0001f642"),
        # Control tokens as many models spell them, and how tokens are written in files
        ("<s>", "</s>", "<unk>", "<pad>", "<bos>a<eos>", " <s> a </s> ", "<|endoftext|>"),
        ("<|im_start|>user\nhi<|im_end|>",),
        ("[INST] a [/INST]", "<think>\na\n</think>\n\nb", '<tool_call>{"a": 1}</tool_call>'),
        ("<|begin_of_text|>a<|eot_id|>",),
        ("<start_of_turn>user\na<end_of_turn>", "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "<unused7>", "<mask>"),
        ("[CLS] a [SEP]", "<0x0A>", "<0xE2><0x96>", "\u0120a \u010aa", "a</w> ##b"),
    )
    for text in texts
)  # fmt: skip


def generated(pieces: Sequence[bytes]) -> Iterator[str]:
    """Texts of tokens drawn from `pieces`: the same for the same pieces, on every machine.

    Nearly every token of a small vocabulary occurs, and one in twenty of 150,000.
    """
    for number in range(min(_MOST, len(pieces) // 2)):
        drawn = hashlib.sha512(b"%d" % number).digest()
        at = (int.from_bytes(drawn[4 * each : 4 * each + 4], "big") % len(pieces) for each in range(_IN_EACH))
        yield _text([pieces[each] for each in at])


def around(names: Sequence[bytes]) -> Iterator[str]:
    """Texts that spell out `names`, each between letters."""
    for first in range(0, len(names), _IN_EACH):
        yield "x" + _text([name + b"x" for name in names[first : first + _IN_EACH]])


def may_be_found_whole(piece: bytes) -> bool:
    """Whether a tokenizer is likely to find this token of text as a whole: it reads like markup, or is white space."""
    return piece.startswith((b"<", b"[", b" ", b"\t", b"\n", b"\r")) and (piece.isspace() or piece[-1:] in b">]")


def _text(pieces: Sequence[bytes]) -> str:
    return b"".join(pieces).decode(errors="ignore")  # pieces may be parts of characters


def timing_ids(size: int, count: int) -> list[int]:
    """`count` ids below `size`, the same in each call, as mixed as those of a text.

    In a model with experts, equal tokens would all go to the same few, and a pass over them would take less than one
    over a draft.
    """
    return Random(0).choices(range(size), k=count)
