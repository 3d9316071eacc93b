import type { AnswerReader } from '../../../chat_formats/answer_reader.js';
import type { AnswerFrame } from '../../../grammar/answer_frame.js';
import type { TextForm } from '../../../grammar/text_form.js';
import { checkTools, type ChatOptions, shownTools } from '../../../chat_formats/tools.js';
import type { Tokenizer } from '../../../tokenizer/index.js';
import { oneOf } from '../../../base/options.js';
import { SPECULATES } from '../../contracts/options/sampling_rows.js';
import { samplingSchema } from '../../ranks/sampling/sampling_options.js';
import { formSchema, wantsForm } from './forms.js';

/** For options that say what a conversation's template is told, and how answers are read. */
export const chatSchema = {
  tools: true,
  toolChoice: true,
  parallelToolCalls: true,
  enableThinking: true,
  chatTemplateKwargs: true,
  separateReasoning: true,
} as const satisfies Record<keyof ChatOptions, true>;

/** Of all that answers: what is of each answer alike, but how many tokens it may have. */
export const answerSchema = {
  ...samplingSchema,
  ...formSchema,
  ...chatSchema,
  stop: true,
  signal: true,
  ignoreEos: true,
  speculate: oneOf(SPECULATES),
  adapter: true,
} as const;

export { checkTools };

/** Tokens of a prompt's end that say whether it has begun the thinking. */
const TAIL = 16;

/** The text that a prompt ends with, special tokens included. */
const endOf = (tokenizer: Tokenizer, prompt: readonly number[]): string =>
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

/** Whether an answer's tokens are limited at all. */
export const wantsFrame = (options: ChatOptions & TextForm): boolean => {
  const { toolChoice: choice = 'auto' } = options;
  const shown = shownTools(options);
  const forced = shown !== undefined && choice !== 'auto';
  return wantsForm(options) || forced || (shown?.some(({ function: of }) => of.strict === true) ?? false);
};

/** What a form's text stands in: thoughts come before it, calls may or must take its place; undefined: nothing. */
export function frameOf(
  tokenizer: Tokenizer | undefined,
  prompt: readonly number[],
  options: ChatOptions & TextForm,
  isChat: boolean,
): AnswerFrame | undefined {
  const { toolChoice: choice = 'auto', separateReasoning = isChat, parallelToolCalls: several = true } = options;
  const shown = shownTools(options);
  const needed = shown !== undefined && choice !== 'auto';
  if (!tokenizer || !wantsFrame(options)) return undefined;
  const { format } = tokenizer;
  const end = endOf(tokenizer, prompt);
  const thinking =
    separateReasoning && format.thinking && !end.trimEnd().endsWith(format.thinking.close)
      ? { ...format.thinking, begun: format.isOpen(end) }
      : undefined;
  const tools =
    typeof choice === 'object' ? shown?.filter(({ function: of }) => of.name === choice.function.name) : shown;
  const calls = tools && { tools, needed, several };
  if (!calls && !thinking && !(separateReasoning && format.name === 'harmony')) return undefined;
  return { format: format.name, thinking, calls };
}
