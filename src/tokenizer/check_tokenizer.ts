import { formatError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import { slowExpression } from './expressions.js';

type Json = Record<string, unknown>;

/** Tokenizers have some ten steps. */
const [MAX_STEPS, MAX_DEPTH] = [1000, 16];
/** Letters that the steps before the model may make of one. */
const MAX_GROWTH = 16;
/** Tokens and merges; the largest vocabularies have 900,000 and 500,000. */
const MAX_TOKENS = 1 << 20;
/** Ids may leave out as many. */
const MAX_GAP = 100_000;

/**
 * Refuses a tokenizer.json that would take more time or memory than any tokenizer needs: to read, or to tokenize a text.
 * @throws SplitkvError `format`
 */
export function checkTokenizer(json: Json): void {
  let growth = 1;
  let prepended = 0;
  for (const key of ['normalizer', 'pre_tokenizer', 'post_processor', 'decoder']) {
    for (const step of stepsOf(json[key], key)) {
      const { type, content, pattern } = step;
      if (type === 'Prepend' && typeof step.prepend === 'string') prepended += step.prepend.length;
      if (!isObject(pattern)) continue;
      if (typeof pattern.Regex === 'string') {
        const slow = slowExpression(pattern.Regex);
        if (slow !== undefined)
          throw formatError(
            `tokenizer.json: the expression ${show(pattern.Regex)} of ${key} (${String(type)}) could take for ever: ${slow}`,
          );
      }
      if (type !== 'Replace' || key === 'decoder' || typeof content !== 'string') continue;
      // The library would take these for what was found, or for the text around it.
      if (/\$[$&`'<\d]/.test(content))
        throw formatError(`tokenizer.json: ${key} replaces by ${show(content)}; expected a text without '$'`);
      const least = typeof pattern.String === 'string' ? pattern.String.length : 1;
      growth *= Math.max(1, least === 0 ? content.length + 1 : content.length / least);
    }
  }
  if (growth > MAX_GROWTH || prepended > 16 * MAX_GROWTH)
    throw formatError(
      `tokenizer.json: its normalizers can make a text ${growth} times as long, and ${prepended} letters longer; expected at most ${MAX_GROWTH} times`,
    );
  checkIds(json);
}

/** The steps of a part of a tokenizer, those in sequences too. */
function stepsOf(config: unknown, key: string): Json[] {
  const steps: Json[] = [];
  for (const left = [{ config, depth: 1 }]; left.length > 0;) {
    const { config: step, depth } = left.pop()!;
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
  const tokens = Array.isArray(vocab) ? vocab.length : isObject(vocab) ? Object.keys(vocab).length : 0;
  const all = tokens + (Array.isArray(added) ? added.length : 0);
  if (all > MAX_TOKENS || (Array.isArray(merges) && merges.length > MAX_TOKENS))
    throw formatError(`tokenizer.json: it has more than ${MAX_TOKENS} tokens or merges`);
  const check = (token: unknown, id: unknown): void => {
    if (typeof id === 'number' && !(id < all + MAX_GAP))
      throw formatError(
        `tokenizer.json: the token ${show(token)} has the id ${id}; expected less than ${all + MAX_GAP}, as there are ${all} tokens`,
      );
  };
  if (isObject(vocab)) for (const token in vocab) check(token, vocab[token]);
  if (Array.isArray(added)) for (const token of added) if (isObject(token)) check(token.content, token.id);
}
