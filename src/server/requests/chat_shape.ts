import type { CompletionEvent, TokenChance } from '../../index.js';
import type { AnswerShape } from './answer_shape.js';

export const chatShape: AnswerShape = {
  idPrefix: 'chatcmpl-',
  object: 'chat.completion',
  chunkObject: 'chat.completion.chunk',
  opening: { delta: { role: 'assistant', content: '', refusal: null }, logprobs: null },
  whole: ({ text, logprobs }) => ({
    message: { role: 'assistant', content: text, refusal: null },
    logprobs: logprobsOf(logprobs),
  }),
  piece: (text, logprobs) => ({ delta: { content: text }, logprobs: logprobsOf(logprobs) }),
  closing: { delta: {}, logprobs: null },
};

function logprobsOf(logprobs: CompletionEvent['logprobs'] | undefined): object | null {
  if (!logprobs) return null;
  return {
    content: logprobs.map((token) => ({ ...chance(token), top_logprobs: token.top.map(chance) })),
    refusal: null,
  };
}

const chance = ({ text, logprob, bytes }: TokenChance): object => ({ token: text, logprob, bytes });
