import { isObject } from '../base/json.js';
import { byteCharacters } from './token_bytes.js';

/**
 * Which UTF-16 units of a text are sure to come through to the model, each as a unit of its own: all; those below U+0300, which
 * Unicode's normal forms never join to one another; ASCII letters and digits; none.
 */
type Surviving = 'all' | 'low' | 'word' | 'none';
const ORDER: readonly Surviving[] = ['all', 'low', 'word', 'none'];

type Json = Record<string, unknown>;

/** The least number of tokens that a text can have, by its length alone. */
export class LengthBound {
  readonly #surviving: Surviving;
  /** Units that one token can stand for, at most. */
  readonly #longest: number;

  /**
   * What a tokenizer drops, joins or swallows doesn't count: a text that fits is never said to have too many tokens. Of a component
   * that isn't known here nothing is assumed.
   *
   * @param json the parsed tokenizer.json
   * @param normalize its normalizer, for added tokens that are looked for in normalized text
   */
  constructor(json: Json, config: Json, normalize: (text: string) => string) {
    const added = Array.isArray(json.added_tokens) ? json.added_tokens.filter(isObject) : [];
    const cuts = stepsOf(json.pre_tokenizer);
    const last = cuts.at(-1);
    const steps = [
      ...stepsOf(json.normalizer).map(ofStep),
      ...cuts.map(ofStep),
      ofModel(json.model, isObject(last) && last.type === 'ByteLevel'),
      ...added.map(({ lstrip, rstrip }) => plain(lstrip || rstrip ? 'word' : 'all')),
      plain(config.remove_space === true || config.do_lowercase_and_remove_accent === true ? 'word' : 'all'),
    ];
    const surviving = ORDER[Math.max(...steps.map(({ surviving: one }) => ORDER.indexOf(one)))]!;
    // A letter that one step turns into something else, another may drop.
    this.#surviving = surviving !== 'all' && steps.some(({ rewrites }) => rewrites) ? 'none' : surviving;
    this.#longest = this.#surviving === 'none' ? Infinity : longest(json.model as Json, added, normalize);
  }

  /** 0 where nothing is certain. */
  fewestTokens(text: string): number {
    return this.#surviving === 'none' ? 0 : Math.ceil(count(text, this.#surviving) / this.#longest);
  }
}

interface Step {
  readonly surviving: Surviving;
  /** Letters and digits may become something else. */
  readonly rewrites: boolean;
}

const plain = (surviving: Surviving): Step => ({ surviving, rewrites: false });
const nothing: Step = { surviving: 'none', rewrites: true };

/** What comes through the steps that are known; others aren't trusted. */
const KNOWN: Readonly<Record<string, Surviving>> = {
  ...each('all', 'Prepend', 'Lowercase', 'ByteLevel', 'Digits', 'Punctuation', 'FixedLength'),
  ...each('low', 'NFC', 'NFD', 'NFKC', 'NFKD'),
  ...each('word', 'Strip', 'StripAccents', 'BertNormalizer', 'Precompiled'),
  ...each('word', 'Whitespace', 'WhitespaceSplit', 'BertPreTokenizer'),
};

function each(surviving: Surviving, ...types: readonly string[]): Record<string, Surviving> {
  return Object.fromEntries(types.map((type) => [type, surviving]));
}

/** The steps of a normalizer or a pre-tokenizer, of sequences theirs. */
function stepsOf(config: unknown): unknown[] {
  if (config == null) return [];
  const inner =
    isObject(config) && config.type === 'Sequence' ? (config.normalizers ?? config.pretokenizers) : undefined;
  return Array.isArray(inner) ? inner.flatMap(stepsOf) : [config];
}

function ofStep(step: unknown): Step {
  if (!isObject(step)) return nothing;
  const { type, pattern, invert } = step;
  switch (type) {
    case 'Replace':
      return ofReplace(step);
    case 'Metaspace':
      return plain(step.replacement === '' ? 'word' : 'all');
    case 'Split':
      if (!isObject(pattern) || invert || typeof (pattern.String ?? pattern.Regex) !== 'string') return nothing;
      return plain(String(step.behavior).toLowerCase() === 'removed' ? withoutWords(pattern) : 'all');
    default: {
      const known = Object.hasOwn(KNOWN, String(type)) ? KNOWN[String(type)] : undefined;
      return known ? plain(known) : nothing;
    }
  }
}

/** What may be left out of a text that a pattern matches. */
function withoutWords({ String: text, Regex: regex }: Json): Surviving {
  if (typeof text === 'string') return /^[ -/:-@[-`{-~\t\n\r]*$/.test(text) ? 'word' : 'none';
  return typeof regex === 'string' && BLANKS.test(regex) ? 'word' : 'none';
}

/** A regular expression for one kind of blank, or several of it. */
const BLANKS = /^(?:\\s| |\\n|\\r|\\t|\[(?:\\s| |\\n|\\r|\\t)+\])(?:[+*]|\{\d+,?\d*\})?$/;

function ofReplace({ pattern, content = '' }: Json): Step {
  if (!isObject(pattern) || typeof content !== 'string') return nothing;
  const surviving = withoutWords(pattern);
  if (typeof pattern.String !== 'string') return plain(surviving);
  const from = pattern.String;
  // Of what it puts there a blank's mark is the one character above the low ones that joins no other in a normal form.
  const rewrites = surviving === 'none' || /[^\0-\u02ff\u2581]/.test(content);
  return { surviving: content.length >= from.length ? 'all' : surviving, rewrites };
}

const WORD_CHARACTERS = Array.from('0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ');
const BYTE_TOKENS = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);

/** @param bytes it sees bytes as letters */
function ofModel(model: unknown, bytes: boolean): Step {
  if (!isObject(model)) return nothing;
  if (model.type === 'Unigram' && Array.isArray(model.vocab)) {
    // What isn't known becomes one unknown token, however long. A letter with a token of its own is known.
    const pieces = new Set(model.vocab.map((entry: unknown) => (Array.isArray(entry) ? (entry[0] as unknown) : entry)));
    return WORD_CHARACTERS.every((letter) => pieces.has(letter)) ? plain('word') : nothing;
  }
  // Of the others one token may stand for a word of any length, or a word of any length for nothing.
  if (model.type !== 'BPE' || !isObject(model.vocab) || !Array.isArray(model.merges)) return nothing;
  if (model.continuing_subword_suffix != null) return nothing;
  const { vocab } = model;
  const has = (token: string): boolean => Object.hasOwn(vocab, token);
  const fallsBack = model.byte_fallback === true && BYTE_TOKENS.every(has);
  const hasUnknown = typeof model.unk_token === 'string' && has(model.unk_token);
  if (fallsBack || (hasUnknown && model.fuse_unk !== true)) return plain('all');
  // Letters without a token are dropped, or become one unknown token together.
  if (model.end_of_word_suffix != null && model.end_of_word_suffix !== '') return nothing;
  if (!model.merges.every((merge: unknown) => has(partsOf(merge).join('')))) return nothing;
  if (bytes && byteCharacters.every(has)) return plain('all');
  return WORD_CHARACTERS.every(has) ? plain('word') : nothing;
}

const partsOf = (merge: unknown): string[] => (Array.isArray(merge) ? merge.map(String) : String(merge).split(' ', 2));

function longest(model: Json, added: readonly Json[], normalize: (text: string) => string): number {
  // A character outside the basic plane is two units.
  let most = 2;
  const see = (length: number): void => {
    if (length > most) most = length;
  };
  const { vocab, merges } = model;
  if (Array.isArray(vocab)) for (const entry of vocab as unknown[][]) see(String(entry[0]).length);
  else for (const token in vocab as Json) see(token.length);
  // Merged letters may be no token themselves.
  if (Array.isArray(merges))
    for (const merge of merges) see(partsOf(merge).reduce((sum, part) => sum + part.length, 0));
  for (const { content } of added) see(Math.max(String(content).length, normalize(String(content)).length));
  return most;
}

function count(text: string, surviving: Surviving): number {
  if (surviving === 'all') return text.length;
  let units = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    const counts =
      surviving === 'low'
        ? unit < 0x300
        : (unit > 47 && unit < 58) || (unit > 64 && unit < 91) || (unit > 96 && unit < 123);
    if (counts) units++;
  }
  return units;
}
