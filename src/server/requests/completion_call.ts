import type * as z from 'zod/mini';
import type { ChatOptions, CompletionOptions, Prompt, TextForm } from '../../index.js';
import { badRequest } from '../api_error.js';
import { type commonFields, given, type IgnoredField } from './fields.js';

/** A request for completions, checked. */
export interface CompletionCall {
  readonly model: string | undefined;
  readonly prompts: readonly Prompt[];
  /** The field that the prompts came in. */
  readonly promptField: 'messages' | 'prompt' | 'input';
  /** The field that says what the answer is to be. */
  readonly formField?: string;
  readonly options: Omit<CompletionOptions, 'signal'>;
  readonly stream: boolean;
  /** The stream ends with the usage. */
  readonly includeUsage: boolean;
  /** What the body says that nobody here knows. */
  readonly ignored: readonly IgnoredField[];
}

type Common = z.infer<z.ZodMiniObject<typeof commonFields>>;

/** What the common fields say. */
export function callOf(
  fields: Common,
  prompts: readonly Prompt[],
  own: Pick<CompletionCall, 'promptField' | 'ignored'> & {
    readonly maxTokens: number;
    readonly logprobs: number | undefined;
    readonly echo?: boolean | undefined;
    readonly chat?: ChatOptions | undefined;
  },
): CompletionCall {
  const options = {
    n: fields.n,
    temperature: fields.temperature,
    topP: fields.top_p,
    topK: given(fields.top_k),
    minP: fields.min_p,
    repetitionPenalty: fields.repetition_penalty,
    frequencyPenalty: fields.frequency_penalty,
    presencePenalty: fields.presence_penalty,
    logitBias: fields.logit_bias,
    stopTokenIds: fields.stop_token_ids,
    minTokens: fields.min_tokens,
    seed: given(fields.seed),
    stop: fields.stop,
    ignoreEos: fields.ignore_eos,
    priority: fields.priority,
    firstTokenSeconds: fields.ttft_deadline_s,
    maxTokens: own.maxTokens,
    logprobs: own.logprobs,
    echo: own.echo,
    // Of messages, also where they come as ids.
    separateReasoning: own.promptField === 'prompt' ? undefined : true,
    ...own.chat,
    ...formOf(fields),
  };
  return {
    model: fields.model ?? undefined,
    prompts,
    promptField: own.promptField,
    options: Object.fromEntries(Object.entries(options).filter(([, value]) => value != null)),
    stream: fields.stream ?? false,
    includeUsage: fields.stream_options?.include_usage ?? false,
    ignored: own.ignored,
  };
}

/** What the answer is to be: as OpenAI says it, or as vLLM does. */
function formOf(fields: Common): Partial<TextForm> {
  const { guided_json, guided_regex, guided_choice, guided_grammar, structured_outputs: structured } = fields;
  const jsonOf = (schema: unknown): TextForm['responseFormat'] => {
    let of = schema;
    if (typeof schema === 'string') {
      try {
        of = JSON.parse(schema);
      } catch {
        throw badRequest('guided_json is no JSON; expected a JSON schema', 'guided_json');
      }
    }
    return { type: 'json_schema', json_schema: { schema: of as Record<string, unknown> } };
  };
  const json = structured?.json ?? guided_json;
  const format = fields.response_format as TextForm['responseFormat'];
  const forms = [
    ['responseFormat', format?.type === 'text' ? undefined : format],
    ['responseFormat', json == null ? undefined : jsonOf(json)],
    ['responseFormat', structured?.json_object ? { type: 'json_object' } : undefined],
    ['regex', fields.regex ?? guided_regex ?? structured?.regex],
    ['choice', fields.choice ?? guided_choice ?? structured?.choice],
    ['grammar', fields.grammar ?? guided_grammar ?? structured?.grammar],
  ] as const;
  const given = forms.filter(([, value]) => value != null);
  if (given.length > 1)
    throw badRequest('response_format, regex, choice and grammar: give one of them', 'response_format');
  return Object.fromEntries(given);
}
