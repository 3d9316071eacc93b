import type { CompletionEvent, TokenChance } from '../../index.js';
import { chatToolCall } from '../../chat_formats/tools.js';
import type { AnswerShape } from './answer_shape.js';

export const chatShape: AnswerShape = {
  idPrefix: 'chatcmpl-',
  object: 'chat.completion',
  chunkObject: 'chat.completion.chunk',
  opening: { delta: { role: 'assistant', content: '', refusal: null }, logprobs: null },
  whole: ({ text, reasoning, toolCalls, logprobs }) => ({
    message: {
      role: 'assistant',
      content: text === '' && toolCalls.length > 0 ? null : text,
      // As DeepSeek's API and vLLM name it.
      ...(reasoning !== '' && { reasoning_content: reasoning }),
      ...(toolCalls.length > 0 && { tool_calls: toolCalls }),
      refusal: null,
    },
    logprobs: logprobsOf(logprobs),
  }),
  piece: (text, logprobs) => ({ delta: { content: text }, logprobs: logprobsOf(logprobs) }),
  thought: (reasoning) => ({ delta: { reasoning_content: reasoning }, logprobs: null }),
  calls: (calls) => ({ delta: { tool_calls: calls.map(chatToolCall) }, logprobs: null }),
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
