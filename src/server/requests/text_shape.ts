import type { CompletionEvent, TokenLogprobs } from '../../index.js';
import type { AnswerShape } from './answer_shape.js';

export const textShape: AnswerShape = {
  idPrefix: 'cmpl-',
  object: 'text_completion',
  chunkObject: 'text_completion',
  whole: ({ text, logprobs }) => ({ text, logprobs: logprobsOf(logprobs) }),
  piece: (text, logprobs) => ({ text, logprobs: logprobsOf(logprobs) }),
  closing: { text: '', logprobs: null },
};

/** The older form: a list each. Offsets count from the beginning of the answer. */
function logprobsOf(logprobs: CompletionEvent['logprobs'] | undefined): object | null {
  if (!logprobs) return null;
  return {
    tokens: logprobs.map(({ text }) => text),
    token_logprobs: logprobs.map(({ logprob }) => (Number.isNaN(logprob) ? null : logprob)),
    top_logprobs: logprobs.map(topOf),
    text_offset: logprobs.map(({ offset }) => offset),
  };
}

/** By text; of tokens that look alike the likeliest. The token itself is always there. */
function topOf(token: TokenLogprobs): Record<string, number> | null {
  // The first token of an echoed prompt, which nothing predicts.
  if (Number.isNaN(token.logprob)) return null;
  const byText = new Map<string, number>();
  for (const { text, logprob } of [...token.top, token]) if (!byText.has(text)) byText.set(text, logprob);
  return Object.fromEntries(byText);
}
