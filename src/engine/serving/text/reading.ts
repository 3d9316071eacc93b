import type { AnswerReader } from '../../../chat_formats/answer_reader.js';
import { checkTools, type ChatOptions, shownTools } from '../../../chat_formats/tools.js';
import type { Tokenizer } from '../../../tokenizer/index.js';

/** For options that say what a conversation's template is told, and how answers are read. */
export const chatSchema = {
  tools: true,
  toolChoice: true,
  parallelToolCalls: true,
  enableThinking: true,
  chatTemplateKwargs: true,
  separateReasoning: true,
} as const satisfies Record<keyof ChatOptions, true>;

export { checkTools };

/** Tokens of a prompt's end that say whether it has begun the thinking. */
const TAIL = 16;

/** The text that a prompt ends with, special tokens included. */
export const endOf = (tokenizer: Tokenizer, prompt: readonly number[]): string =>
  tokenizer.decode(prompt.slice(-TAIL), { skipSpecial: false });

/**
 * Tells an answer's text, thoughts and calls apart; undefined where all is text.
 * @param isChat the prompt is of messages: what is thought is told apart unless the options say otherwise
 */
export function readerOf(
  tokenizer: Tokenizer | undefined,
  prompt: readonly number[],
  options: ChatOptions,
  isChat: boolean,
): AnswerReader | undefined {
  if (!tokenizer) return undefined;
  const { format } = tokenizer;
  const tools = shownTools(options);
  const thinking = format.thinks && (options.separateReasoning ?? isChat);
  // Without its marks an answer in Harmony is no text.
  if (!thinking && !tools && format.name !== 'harmony') return undefined;
  const open = thinking && format.isOpen(endOf(tokenizer, prompt));
  return tokenizer.reader({ thinking, open, tools, parallel: options.parallelToolCalls });
}
