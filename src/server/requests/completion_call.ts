import type * as z from 'zod/mini';
import { snake } from '../../base/names.js';
import { defined } from '../../base/options.js';
import type { OptionRow } from '../../engine/contracts/options/row.js';
import { SAMPLING_ROWS } from '../../engine/contracts/options/sampling_rows.js';
import type { ChatOptions, CompletionOptions, Prompt, SamplingOptions, TextForm } from '../../index.js';
import { badRequest } from '../api_error.js';
import { type commonFields, given, type IgnoredField } from './fields.js';

/** A request for completions, checked. */
export interface CompletionCall {
  readonly model: string | undefined;
  readonly prompts: readonly Prompt[];
  /** The field that the prompts came in. */
  readonly promptField: 'messages' | 'prompt' | 'input';
  /** The field that says what the answer is to be, where one does. */
  readonly formField?: string | undefined;
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
  const { form, field: formField } = formOf(fields);
  const options = {
    n: fields.n,
    ...samplingOf(fields),
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
    ...form,
  };
  return {
    model: fields.model ?? undefined,
    prompts,
    promptField: own.promptField,
    ...(formField !== undefined && { formField }),
    options: defined(options) as Omit<CompletionOptions, 'signal'>,
    stream: fields.stream ?? false,
    includeUsage: fields.stream_options?.include_usage ?? false,
    ignored: own.ignored,
  };
}

/** What the fields say of sampling: -1 is nothing where it asks for none. */
const samplingOf = (fields: Common): SamplingOptions =>
  Object.fromEntries(
    (Object.entries(SAMPLING_ROWS) as [keyof SamplingOptions, OptionRow][]).map(([name, { hasNone }]) => {
      const value = fields[snake(name)];
      return [name, hasNone ? given(value as number) : value];
    }),
  );

/** What the answer is to be, and which field says it: as OpenAI does, or vLLM, or llama.cpp. @throws ApiError 400 for several */
function formOf(fields: Common): { readonly form: Partial<TextForm>; readonly field?: string } {
  const { structured_outputs: structured, response_format: format } = fields;
  const at = (field: keyof NonNullable<typeof structured>): string => `structured_outputs.${field}`;
  const rows: readonly (readonly [field: string, form: keyof TextForm, value: unknown])[] = [
    ['response_format', 'responseFormat', format?.type === 'text' ? undefined : format && formatOf(format)],
    ['json_schema', 'responseFormat', jsonOf(fields.json_schema, 'json_schema')],
    ['guided_json', 'responseFormat', jsonOf(fields.guided_json, 'guided_json')],
    [at('json'), 'responseFormat', jsonOf(structured?.json, at('json'))],
    [at('json_object'), 'responseFormat', structured?.json_object ? { type: 'json_object' } : undefined],
    ...(['regex', 'choice', 'grammar'] as const).flatMap((name) => [
      [name, name, fields[name]] as const,
      [`guided_${name}`, name, fields[`guided_${name}`]] as const,
      [at(name), name, structured?.[name]] as const,
    ]),
  ];
  const [first, second] = rows.filter(([, , value]) => value != null);
  if (second) throw badRequest(`${first![0]} and ${second[0]}: give one of them`, first![0]);
  return first ? { field: first[0], form: { [first[1]]: first[2] } } : { form: {} };
}

/** llama.cpp's clients leave out `json_schema` around the schema. */
function formatOf(format: NonNullable<Common['response_format']>): object {
  const { type, schema, ...rest } = format;
  return type === 'json_schema' && schema !== undefined && rest['json_schema'] === undefined
    ? { type, json_schema: { schema } }
    : format;
}

/** A schema, or its text, as OpenAI has it. @throws ApiError 400 */
function jsonOf(schema: unknown, field: string): object | undefined {
  if (schema == null) return undefined;
  let of = schema;
  if (typeof schema === 'string') {
    try {
      of = JSON.parse(schema);
    } catch {
      throw badRequest(`${field} is no JSON; expected a JSON schema`, field);
    }
  }
  return { type: 'json_schema', json_schema: { schema: of } };
}
