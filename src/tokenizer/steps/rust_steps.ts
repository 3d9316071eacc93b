/**
 * Room: the steps of a tokenizer.json before its model. The library's own steps follow JavaScript's idea of blanks, digits and letters;
 * here they are written as expressions that mean in JavaScript what the original steps mean in Rust.
 */
import { isObject } from '../../base/json.js';

type Json = Record<string, unknown>;

const BLANK = '\\p{White_Space}';
const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}';
const PUNCTUATION = '[\\p{P}!-/:-@\\[-`{-~]';
const CHINESE =
  '[\\u{4E00}-\\u{9FFF}\\u{3400}-\\u{4DBF}\\u{20000}-\\u{2A6DF}\\u{2A700}-\\u{2B73F}\\u{2B740}-\\u{2B81F}\\u{2B920}-\\u{2CEAF}' +
  '\\u{F900}-\\u{FAFF}\\u{2F800}-\\u{2FA1F}]';
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const split = (Regex: string, behavior = 'Isolated', invert = false): Json => ({
  type: 'Split',
  pattern: { Regex },
  behavior,
  invert,
});
const pieces = (...pretokenizers: readonly Json[]): Json => ({ type: 'Sequence', pretokenizers });
const replace = (Regex: string, content = ''): Json => ({ type: 'Replace', pattern: { Regex }, content });
const normalizers = (...steps: readonly Json[]): Json => ({ type: 'Sequence', normalizers: steps });

/** A tokenizer.json for the library, whose steps mean what they mean to the library that wrote the file. */
export function rustSteps(json: Json): Json {
  return { ...json, normalizer: ofNormalizer(json.normalizer), pre_tokenizer: ofPreTokenizer(json.pre_tokenizer) };
}

function ofPreTokenizer(step: unknown): unknown {
  if (!isObject(step)) return step;
  switch (step.type) {
    case 'Sequence':
      return Array.isArray(step.pretokenizers)
        ? { ...step, pretokenizers: step.pretokenizers.map(ofPreTokenizer) }
        : step;
    case 'Digits':
      return split(step.individual_digits === true ? '\\p{N}' : '\\p{N}+');
    case 'ByteLevel': {
      const bytes = { ...step, add_prefix_space: false, use_regex: false };
      const words = step.use_regex === false ? [] : [split(GPT2)];
      const prefix = step.add_prefix_space === true ? [{ type: 'Metaspace', replacement: ' ' }] : [];
      return pieces(...prefix, ...words, bytes);
    }
    case 'Whitespace':
      return split(`[${WORD}]+|[^${WORD}${BLANK}]+`, 'Removed', true);
    case 'WhitespaceSplit':
      return split(BLANK, 'Removed');
    case 'CharDelimiterSplit':
      return ofPreTokenizer({ type: 'Split', pattern: { String: step.delimiter }, behavior: 'Removed' });
    case 'BertPreTokenizer':
      return pieces(split(BLANK, 'Removed'), split(PUNCTUATION));
    case 'Punctuation':
      return splitting(PUNCTUATION, step.behavior ?? 'Isolated', false);
    case 'FixedLength':
      return split(`[\\s\\S]{1,${Number(step.length)}}`);
    case 'Metaspace':
      return ofMetaspace(step);
    case 'Split': {
      const source = sourceOf(step.pattern);
      return source === undefined ? step : splitting(source, step.behavior, step.invert === true);
    }
    default:
      return step;
  }
}

/** The library cuts every match out or keeps it by itself. What joins a match with its neighbours is a longer match. */
function splitting(source: string, behavior: unknown, invert: boolean): Json {
  const all = `(?:${source})`;
  switch (String(behavior)) {
    case 'Removed':
      return split(uncaptured(source), 'Removed', invert);
    case 'Contiguous':
      return split(`${all}+`);
    case invert ? 'MergedWithNext' : 'MergedWithPrevious':
      return split(`[\\s\\S]*?${all}|[\\s\\S]+`);
    case invert ? 'MergedWithPrevious' : 'MergedWithNext':
      return split(`${all}(?:(?!${all})[\\s\\S])*`);
    default:
      return split(source);
  }
}

/** The expression of a pattern; undefined for none. */
function sourceOf(pattern: unknown): string | undefined {
  if (!isObject(pattern)) return undefined;
  if (typeof pattern.String === 'string') return escaped(pattern.String);
  return typeof pattern.Regex === 'string' ? folded(pattern.Regex) : undefined;
}
const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

/** Two letters beyond ASCII are the same as one of ASCII where case doesn't matter; the library doesn't know them. */
const folded = (source: string): string =>
  source.replace(
    /\(\?i:[^()[\]\\]*\)/g,
    (group) => `(?i:${group.slice(4).replace(/s/gi, '[sSſ]').replace(/k/gi, '[kK\u212a]')}`,
  );

/** What groups capture would come back as pieces. */
const uncaptured = (source: string): string =>
  source.replace(/\\[\s\S]|\[(?:\\[\s\S]|[^\]\\])*\]|\((?!\?)/g, (part) => (part === '(' ? '(?:' : part));

/** Older files say by `add_prefix_space` whether a blank is put before a text; all but those that say otherwise cut at blanks. */
function ofMetaspace(step: Json): Json {
  const { replacement = '▁', add_prefix_space: prefix, split: cut = true } = step;
  const scheme = step.prepend_scheme ?? (prefix === false ? 'never' : 'always');
  const marked = { ...step, prepend_scheme: scheme };
  return cut === false || typeof replacement !== 'string'
    ? marked
    : pieces(marked, splitting(escaped(replacement), 'MergedWithNext', false));
}

function ofNormalizer(step: unknown): unknown {
  if (!isObject(step)) return step;
  switch (step.type) {
    case 'Sequence':
      return Array.isArray(step.normalizers) ? { ...step, normalizers: step.normalizers.map(ofNormalizer) } : step;
    case 'Lowercase':
      // JavaScript has another small sigma at the end of a word.
      return normalizers(replace('Σ', 'σ'), step);
    case 'Strip':
      return normalizers(
        ...(step.strip_left === true ? [replace(`\\A${BLANK}+`)] : []),
        ...(step.strip_right === true ? [replace(`(?<!${BLANK})${BLANK}+\\z`)] : []),
      );
    case 'Prepend':
      return typeof step.prepend === 'string' ? replace('\\A(?=[\\s\\S])', step.prepend) : step;
    case 'Replace':
      return isObject(step.pattern) && typeof step.pattern.Regex === 'string'
        ? { ...step, pattern: { Regex: folded(step.pattern.Regex) } }
        : step;
    case 'BertNormalizer':
      return ofBert(step);
    default:
      return step;
  }
}

function ofBert({ clean_text, handle_chinese_chars, strip_accents, lowercase }: Json): Json {
  return normalizers(
    ...(clean_text === true ? [replace('(?![\\t\\n\\r])[\\p{Cc}\\p{Cf}\\p{Co}\\uFFFD]'), replace(BLANK, ' ')] : []),
    ...(handle_chinese_chars === true ? [replace(`(?=${CHINESE})`, ' '), replace(`(?<=${CHINESE})`, ' ')] : []),
    ...((strip_accents ?? lowercase) === true ? [{ type: 'NFD' }, replace('\\p{Mn}')] : []),
    ...(lowercase === true ? [ofNormalizer({ type: 'Lowercase' }) as Json] : []),
  );
}

/** A step of the library's before its model. */
interface Step {
  readonly tokenizers?: readonly Step[];
  readonly prepend_scheme?: string;
  pre_tokenize(text: string, options: object | undefined): string[];
  pre_tokenize_text?: (text: string, options: object | undefined) => string[];
}

/** A mark before the first word of a text is before the text's own first piece, also where another step has cut it before. */
function markOnce(step: Step | null): void {
  const { tokenizers = [] } = step ?? {};
  for (const own of tokenizers) markOnce(own);
  if (!step || !tokenizers.slice(1).some(marksFirst)) return;
  step.pre_tokenize_text = (text, options) => {
    const later = { ...options, section_index: undefined };
    const cut = (pieces: readonly string[], own: Step): string[] =>
      pieces.flatMap((piece, i) => own.pre_tokenize(piece, i === 0 && text.startsWith(piece) ? options : later));
    return tokenizers.reduce(cut, [text]);
  };
}

const marksFirst = ({ prepend_scheme, tokenizers = [] }: Step): boolean =>
  prepend_scheme === 'first' || tokenizers.some(marksFirst);

interface AddedToken {
  readonly single_word: boolean;
  lstrip: boolean;
  rstrip: boolean;
}
interface Splitter {
  split(text: string): string[];
}
interface Inside {
  readonly pre_tokenizer: Step | null;
  readonly added_tokens_map: ReadonlyMap<string, AddedToken>;
  splitter_unnormalized: Splitter;
  splitter_normalized: Splitter;
}

const ENDS_IN_WORD = new RegExp(`[${WORD}]$`, 'u');
const BEGINS_WITH_WORD = new RegExp(`^[${WORD}]`, 'u');
const BLANKS_AT_END = new RegExp(`(?<!${BLANK})${BLANK}+$`, 'u');
const BLANKS_AT_START = new RegExp(`^${BLANK}+`, 'u');

/** Added tokens of a tokenizer of the library's are cut out of a text, and blanks beside them taken, as in Rust. */
export function cutLikeRust(library: object): void {
  const inside = library as Inside;
  markOnce(inside.pre_tokenizer);
  const tokens = new Map([...inside.added_tokens_map].map(([text, token]) => [text, { ...token }]));
  const special = [...tokens.values()].some(({ single_word, lstrip, rstrip }) => single_word || lstrip || rstrip);
  if (!special) return;
  // The library would take JavaScript's blanks.
  for (const token of inside.added_tokens_map.values()) token.lstrip = token.rstrip = false;
  const cutting = (splitter: Splitter): Splitter => ({ split: (text) => cut(splitter.split(text), tokens) });
  inside.splitter_unnormalized = cutting(inside.splitter_unnormalized);
  inside.splitter_normalized = cutting(inside.splitter_normalized);
}

function cut(sections: readonly string[], tokens: ReadonlyMap<string, AddedToken>): string[] {
  const parts: { text: string; token?: AddedToken | undefined }[] = [];
  sections.forEach((text, i) => {
    let token = tokens.get(text);
    const inWord = ENDS_IN_WORD.test(sections[i - 1] ?? '') || BEGINS_WITH_WORD.test(sections[i + 1] ?? '');
    if (token?.single_word && inWord) token = undefined;
    const last = parts.at(-1);
    if (token || !last || last.token) parts.push({ text, token });
    else last.text += text;
  });
  parts.forEach(({ token }, i) => {
    const [before, after] = [parts[i - 1], parts[i + 1]];
    if (token?.lstrip && before && !before.token) before.text = before.text.replace(BLANKS_AT_END, '');
    if (token?.rstrip && after && !after.token) after.text = after.text.replace(BLANKS_AT_START, '');
  });
  return parts.map(({ text }) => text);
}
