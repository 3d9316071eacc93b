import { formatError, usageError, type SplitkvError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import { grouped } from '../base/math.js';
import { looksAgain, slowExpression } from './expressions.js';

type Json = Record<string, unknown>;

/** Published tokenizers have about ten steps, and few in each other. */
const [MAX_STEPS, MAX_DEPTH] = [64, 16];
/** Letters that the steps before the model may make of one. */
const MAX_GROWTH = 16;
/** Tokens and merges; the largest vocabularies of language models have 262,144 and 580,000. */
const [MAX_TOKENS, MAX_MERGES] = [1 << 19, 640_000];
/** Ids may leave out as many. */
const MAX_GAP = 100_000;

/** Letters that WordPiece takes a word of, each part of which it looks for. The published ones take 100. */
const MAX_WORD = 256;
/** Letters of what a model puts before or behind a part of a word. */
const MAX_AFFIX = 64;
/** Letters of a Unigram's tokens, which are looked for at every letter of a text; and of those, how many begin alike. */
const [MAX_PIECE, MAX_ALIKE] = [512, 128];
/** Letters of all tokens of a tree, each of which is an object of its own. */
const MAX_TREE = 1 << 21;
/** Tokens that are put around a text. */
const MAX_AROUND = 1000;

/** Steps that expressions may take on the runs of a text that they look at again and again: some 0.3 s. */
const MAX_AGAIN = 2e8;

/**
 * Refuses a tokenizer.json that would take more time or memory than any tokenizer needs: to read, or to tokenize a text.
 * @returns refuses a text (`usage`) of whose runs its expressions take too many steps; undefined where they take n for n letters
 * @throws SplitkvError `format`
 */
export function checkTokenizer(json: Json): ((text: string) => void) | undefined {
  checkIds(json);
  checkGrowth(json, ['normalizer', 'pre_tokenizer', 'post_processor'], 'a text');
  checkGrowth(json, ['decoder'], 'a token');
  checkModel(json);
  const runs = expressionsOf(json).flatMap(looksAgain);
  if (runs.length === 0) return undefined;
  return (text) => {
    // A run of the whole text is the worst there can be.
    if (text.length ** 2 * runs.length <= MAX_AGAIN) return;
    let steps = 0;
    for (const run of runs) for (const [letters] of text.matchAll(run)) steps += letters.length ** 2;
    if (steps > MAX_AGAIN)
      throw usageError(
        `the text has ${grouped(text.length)} letters, of which the tokenizer's expressions look at long runs again and again; ` +
          'break them up, or use a shorter text',
      );
  };
}

const expressionsOf = (json: Json): string[] =>
  ['normalizer', 'pre_tokenizer'].flatMap((key) => stepsOf(json[key], key)).flatMap((step) => regexOf(step) ?? []);
const regexOf = ({ pattern }: Json): string | undefined =>
  isObject(pattern) && typeof pattern.Regex === 'string' ? pattern.Regex : undefined;

function checkGrowth(json: Json, keys: readonly string[], what: string): void {
  let growth = 1;
  let added = 0;
  let bytes = false;
  for (const key of keys) {
    for (const step of stepsOf(json[key], key)) {
      const { factor, more } = growthOf(step, key, bytes);
      bytes ||= step.type === 'ByteLevel';
      growth *= factor;
      added += more;
    }
  }
  if (growth > MAX_GROWTH || added > 16 * MAX_GROWTH)
    throw formatError(
      `tokenizer.json: its ${keys.join(' and ')} can make ${what} ${growth} times as long, and ${added} letters longer; expected at most ${MAX_GROWTH} times`,
    );
}

/**
 * How many letters a step makes of one at most, and how many it adds to a text. Unicode's normal forms aren't counted: what they unfold
 * they unfold once.
 * @param bytes bytes are letters already, of two bytes each
 */
function growthOf(step: Json, key: string, bytes: boolean): { factor: number; more: number } {
  const { type, content, pattern } = step;
  const regex = regexOf(step);
  const slow = regex === undefined ? undefined : slowExpression(regex);
  if (slow !== undefined)
    throw formatError(
      `tokenizer.json: the expression ${show(regex)} of ${key} (${String(type)}) could take for ever: ${slow}`,
    );
  const same = { factor: 1, more: 0 };
  switch (type) {
    case 'Prepend':
      return { factor: 1, more: lengthOf(step.prepend) };
    case 'Metaspace': {
      const length = lengthOf(step.str_rep) || lengthOf(step.replacement);
      return key === 'pre_tokenizer' ? { factor: Math.max(1, length), more: length } : same;
    }
    case 'ByteLevel':
      return key === 'pre_tokenizer' ? { factor: bytes ? 2 : 3, more: step.add_prefix_space === true ? 1 : 0 } : same;
    case 'BertNormalizer':
      return { factor: 3, more: 0 };
    case 'FixedLength':
      if (!Number.isInteger(step.length) || Number(step.length) < 1)
        throw formatError(`tokenizer.json: pieces of the length ${show(step.length)}; expected a whole number from 1`);
      return same;
    case 'TemplateProcessing':
      return aroundText(step);
    case 'Replace': {
      if (!isObject(pattern) || typeof content !== 'string') return same;
      // The library would take these for what was found, or for the text around it.
      if (key !== 'decoder' && /\$[$&`'<\d]/.test(content))
        throw formatError(`tokenizer.json: ${key} replaces by ${show(content)}; expected a text without '$'`);
      const least = typeof pattern.String === 'string' ? pattern.String.length : 1;
      return { factor: Math.max(1, least === 0 ? content.length + 1 : content.length / least), more: content.length };
    }
    default:
      return same;
  }
}

const lengthOf = (value: unknown): number => (typeof value === 'string' ? value.length : 0);

/** A text is there as often as its template says. */
function aroundText({ single }: Json): { factor: number; more: number } {
  if (!Array.isArray(single)) return { factor: 1, more: 0 };
  if (single.length > MAX_AROUND)
    throw formatError(
      `tokenizer.json: post_processor puts ${single.length} parts together; expected a text and some tokens`,
    );
  const texts = single.filter((part: unknown) => isObject(part) && 'Sequence' in part).length;
  return { factor: Math.max(1, texts), more: 0 };
}

/** What tokenizing a word takes is a matter of the words that a model has. */
function checkModel({ model, added_tokens: added }: Json): void {
  if (!isObject(model)) return;
  for (const key of ['continuing_subword_prefix', 'continuing_subword_suffix', 'end_of_word_suffix']) {
    if (lengthOf(model[key]) > MAX_AFFIX)
      throw formatError(`tokenizer.json: ${key} of the model has ${lengthOf(model[key])} letters; expected a few`);
  }
  const { max_input_chars_per_word: most = 100 } = model;
  if (model.type === 'WordPiece' && !(Number(most) <= MAX_WORD))
    throw formatError(
      `tokenizer.json: max_input_chars_per_word of the model is ${show(most)}; expected at most ${MAX_WORD}`,
    );
  const contents = Array.isArray(added) ? added.map((token: unknown) => (isObject(token) ? token.content : '')) : [];
  checkTree(contents, 'added tokens');
  if (model.type !== 'Unigram' || !Array.isArray(model.vocab)) return;
  const pieces = model.vocab.map((entry: unknown) => (Array.isArray(entry) ? (entry[0] as unknown) : ''));
  checkTree(pieces, "the model's tokens");
  const sorted = pieces.filter((piece) => typeof piece === 'string').sort();
  const begun: string[] = [];
  for (const piece of sorted) {
    while (!piece.startsWith(begun.at(-1) ?? '')) begun.pop();
    begun.push(piece);
    if (begun.length > MAX_ALIKE)
      throw formatError(
        `tokenizer.json: more than ${MAX_ALIKE} tokens of the model begin one another, up to ${show(piece)}; expected words and parts of words`,
      );
  }
}

function checkTree(texts: readonly unknown[], what: string): void {
  let letters = 0;
  for (const text of texts) {
    const length = lengthOf(text);
    letters += length;
    if (length > MAX_PIECE || letters > MAX_TREE)
      throw formatError(
        `tokenizer.json: ${what} have ${letters} letters or more, one of them ${length}; expected at most ${MAX_TREE} in all, and ${MAX_PIECE} of one`,
      );
  }
}

/** The steps of a part of a tokenizer, those in sequences too. */
function stepsOf(config: unknown, key: string): Json[] {
  const steps: Json[] = [];
  const left = [{ config, depth: 1 }];
  for (let next = left.pop(); next; next = left.pop()) {
    const { config: step, depth } = next;
    if (!isObject(step)) continue;
    steps.push(step);
    if (depth > MAX_DEPTH || steps.length > MAX_STEPS)
      throw formatError(
        `tokenizer.json: ${key} has more than ${MAX_STEPS} steps, or ${MAX_DEPTH} in one another; expected some ten`,
      );
    for (const list of [step.normalizers, step.pretokenizers, step.processors, step.decoders])
      if (Array.isArray(list))
        for (const inner of list.slice(0, MAX_STEPS + 1)) left.push({ config: inner, depth: depth + 1 });
  }
  return steps;
}

/** A list by ids is as long as the largest: one id near 2^32 would make it as long. */
function checkIds({ model, added_tokens: added }: Json): void {
  const { vocab, merges } = isObject(model) ? model : {};
  const ids = isObject(vocab) ? Object.values(vocab) : [];
  const tokens = Array.isArray(vocab) ? vocab.length : ids.length;
  const all = tokens + (Array.isArray(added) ? added.length : 0);
  if (all > MAX_TOKENS || (Array.isArray(merges) && merges.length > MAX_MERGES))
    throw formatError(`tokenizer.json: it has more than ${MAX_TOKENS} tokens, or ${MAX_MERGES} merges`);
  const isId = (id: unknown): boolean => Number.isInteger(id) && Number(id) >= 0 && Number(id) < all + MAX_GAP;
  const bad = (token: unknown, id: unknown): SplitkvError =>
    formatError(
      `tokenizer.json: the token ${show(token)} has the id ${show(id)}; expected a whole number below ${all + MAX_GAP}, as there are ${all} tokens`,
    );
  const wrong = ids.findIndex((id) => !isId(id));
  if (wrong >= 0) throw bad(Object.keys(vocab as Json)[wrong], ids[wrong]);
  if (!Array.isArray(added)) return;
  for (const token of added) if (isObject(token) && !isId(token.id)) throw bad(token.content, token.id);
}
