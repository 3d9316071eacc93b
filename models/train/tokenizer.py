"""The byte-level BPE of the embedded models: built from the story words, written as a Hugging Face tokenizer.json.

Every story word is one token; anything else falls back to bytes, so no input is unknown. Merges are learned on the word
list until every word is whole: because BPE replays its merges in the order they were learned, encoding a listed word then
gives exactly that one token.
"""

import collections
import json
import unicodedata

BEGIN, END, PAD, USER, ASSISTANT = '<|begin|>', '<|end|>', '<|pad|>', '<|user|>', '<|assistant|>'
SPECIALS = [PAD, BEGIN, END, USER, ASSISTANT]

# A system message is told before the first turn, as a story would be.
CHAT_TEMPLATE = (
    "{{ '<|begin|>' }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<|user|>' + message['content'] | trim }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|> ' + message['content'] | trim + '<|end|>' }}"
    "{% else %}{{ message['content'] | trim }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def byte_characters():
    """GPT-2's map from byte to printable character: {byte: character}."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + len(table) - len(printable))
    return dict(sorted(table.items()))


BYTE_TO_CHARACTER = byte_characters()
CHARACTER_TO_BYTE = {c: b for b, c in BYTE_TO_CHARACTER.items()}


def to_characters(text):
    return ''.join(BYTE_TO_CHARACTER[b] for b in text.encode('utf-8'))


def learn_merges(pieces):
    """Merge the most frequent pair of the list, ties alphabetically, until each of `pieces` is one symbol."""
    words = [list(to_characters(piece)) for piece in sorted(set(pieces))]
    merges = []
    while True:
        pairs = collections.Counter(pair for word in words for pair in zip(word, word[1:]))
        if not pairs:
            return merges
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = [merge(word, best) for word in words]


def merge(word, pair):
    merged, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            merged.append(word[i] + word[i + 1])
            i += 2
        else:
            merged.append(word[i])
            i += 1
    return merged


def kind(character):
    """The classes of GPT-2's splitting pattern: letter, number, space, other."""
    category = unicodedata.category(character)
    return 'L' if category[0] == 'L' else 'N' if category[0] == 'N' else 'S' if character.isspace() else 'O'


def split(text):
    """GPT-2's pattern: 's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"""
    pieces, i = [], 0
    while i < len(text):
        contraction = next((c for c in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d") if text.startswith(c, i)), None)
        if contraction:
            pieces.append(contraction)
            i += len(contraction)
            continue
        start = i
        spaced = text[i] == ' ' and i + 1 < len(text) and kind(text[i + 1]) != 'S'
        i += 1 if spaced else 0
        group = kind(text[i])
        while i < len(text) and kind(text[i]) == group:
            i += 1
        if group == 'S' and i < len(text) and i - start > 1:
            i -= 1  # the last blank of a run belongs to what follows it
        pieces.append(text[start:i])
    return pieces


class Tokenizer:
    def __init__(self, pieces, more=()):
        """pieces: the strings (with their leading space, where they have one) that must be single tokens; more: special tokens."""
        self.specials = [*SPECIALS, *more]
        self.merges = learn_merges(pieces)
        self.vocabulary = [*self.specials, *BYTE_TO_CHARACTER.values(), *(a + b for a, b in self.merges)]
        self.ids = {token: i for i, token in enumerate(self.vocabulary)}
        assert len(self.ids) == len(self.vocabulary), 'two merges make the same token'
        self.ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        for piece in pieces:
            assert len(self.encode(piece)) == 1, f'{piece!r} is not one token'

    def __len__(self):
        return len(self.vocabulary)

    def encode(self, text):
        """Token ids of text; special tokens are recognised, none is added."""
        ids = []
        while text:
            found = [(text.find(s), s) for s in self.specials if s in text]
            at, special = min(found) if found else (len(text), '')
            for piece in split(text[:at]):
                ids.extend(self.ids[symbol] for symbol in self.merge_piece(piece))
            if special:
                ids.append(self.ids[special])
            text = text[at + len(special):]
        return ids

    def merge_piece(self, piece):
        word = list(to_characters(piece))
        while len(word) > 1:
            pair = min(zip(word, word[1:]), key=lambda p: self.ranks.get(p, len(self.ranks)))
            if pair not in self.ranks:
                break
            word = merge(word, pair)
        return word

    def decode(self, ids, skip_specials=False):
        data = bytearray()
        for i in ids:
            token = self.vocabulary[i]
            if i < len(self.specials):
                data += b'' if skip_specials else token.encode()
            else:
                data += bytes(CHARACTER_TO_BYTE[c] for c in token)
        return data.decode('utf-8', errors='replace')

    def write(self, folder, template=CHAT_TEMPLATE):
        """tokenizer.json and tokenizer_config.json."""
        begin = {'id': BEGIN, 'type_id': 0}
        first, second = {'id': 'A', 'type_id': 0}, {'id': 'B', 'type_id': 1}
        level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
        tokenizer = {
            'version': '1.0',
            'truncation': None,
            'padding': None,
            'added_tokens': [
                {'id': i, 'content': token, 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False,
                 'special': True} for i, token in enumerate(self.specials)
            ],
            'normalizer': None,
            'pre_tokenizer': level,
            'post_processor': {
                'type': 'TemplateProcessing',
                'single': [{'SpecialToken': begin}, {'Sequence': first}],
                'pair': [{'SpecialToken': begin}, {'Sequence': first}, {'Sequence': second}],
                'special_tokens': {BEGIN: {'id': BEGIN, 'ids': [self.ids[BEGIN]], 'tokens': [BEGIN]}},
            },
            'decoder': level,
            'model': {
                'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None,
                'end_of_word_suffix': None, 'fuse_unk': False, 'byte_fallback': False, 'ignore_merges': False,
                'vocab': self.ids, 'merges': [f'{a} {b}' for a, b in self.merges],
            },
        }
        config = {
            'tokenizer_class': 'PreTrainedTokenizerFast', 'model_max_length': 4096, 'clean_up_tokenization_spaces': False,
            'add_bos_token': True, 'bos_token': BEGIN, 'eos_token': END, 'pad_token': PAD, 'unk_token': None,
            'additional_special_tokens': self.specials[3:], 'chat_template': template,
            'added_tokens_decoder': {
                str(t['id']): {k: v for k, v in t.items() if k != 'id'} for t in tokenizer['added_tokens']
            },
        }
        for name, value in (('tokenizer.json', tokenizer), ('tokenizer_config.json', config)):
            (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + '\n', encoding='utf-8')
