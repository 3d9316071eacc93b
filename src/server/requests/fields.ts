import * as z from 'zod/mini';
import { didYouMean } from '../../base/errors.js';
import { isObject, jsonText, parsed, shortened, show } from '../../base/json.js';
import { grouped } from '../../base/math.js';
import { snake } from '../../base/names.js';
import { defined, isWithin, type NumberRange, rangeText } from '../../base/options.js';
import type { OptionRow } from '../../engine/contracts/options/row.js';
import { SAMPLING_ROWS, SPECULATES } from '../../engine/contracts/options/sampling_rows.js';
import type { ChatOptions, CompletionOptions, Prompt, SamplingFields, SamplingOptions, TextForm } from '../../index.js';
import { ApiError, badRequest } from '../api_error.js';
import { type Api, sortOf } from './field_table.js';

/** Each schema's error says what is expected in its place. Clients send null for what they leave out. */

const integer = (low: number, high?: number) => {
  const range = { integer: true, low, ...(high !== undefined && { high }) } as const;
  const expected = high === undefined ? `${rangeText(range)} and below 2^53` : rangeText(range);
  return z.int(expected).check(z.refine((value) => isWithin(value, range), expected));
};
const number = (range: NumberRange, expected = rangeText(range)) =>
  z.number(expected).check(z.refine((value) => isWithin(value, range), expected));

/** As `integer`; -1 asks for none, as with llama.cpp and vLLM. */
const integerOrNone = (low: number) => {
  const expected = `an integer of at least ${low} and below 2^53, or -1 for none`;
  return z.int(expected).check(z.refine((value) => value === -1 || value >= low, expected));
};
/** A field's value where it asks for any. */
export const given = (value: number | null | undefined): number | undefined =>
  value == null || value === -1 ? undefined : value;

export const flag = z.nullish(z.boolean('true or false'));

export const MAX_STOPS = 256;
/** Fields of a request, known or not. */
const MAX_FIELDS = 100;
export const STOP = `a text, or a list of at most ${MAX_STOPS} texts, none of them empty`;
const ONE_STOP = 'a text of at least one character';
const stopText = z.string(ONE_STOP).check(z.minLength(1, ONE_STOP));

const BIASES =
  'an object of biases by token id or text, such as {"50256": -100, " cat": 2}, or a list of [id or text, bias]';
type Biases = Readonly<Record<string, number | false>> | readonly (readonly [number | string, number | false])[];
const pairsOf = (given: Biases) => (Array.isArray(given) ? given : Object.entries(given)) as [unknown, unknown][];
const isPair = (pair: unknown): boolean =>
  Array.isArray(pair) &&
  pair.length === 2 &&
  /^(\d+|.*[^\d.-].*)$/s.test(String(pair[0])) &&
  (pair[1] === false || Number.isFinite(pair[1]));

/** By one look each: there may be as many as a vocabulary has, and as many faults. Pairs, texts and false (-100) are llama.cpp's. */
const biases = z.pipe(
  z.custom<Biases>(
    (given) => (Array.isArray(given) || isObject(given)) && pairsOf(given as Biases).every(isPair),
    BIASES,
  ),
  z.transform((given): Record<string, number> =>
    Object.fromEntries(pairsOf(given).map(([key, bias]) => [key, bias === false ? -100 : bias])),
  ),
);
export const tokenIds = (expected: string) =>
  z.custom<number[]>(
    (value) => Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0),
    expected,
  );

const FORMAT = 'an object such as {"type": "json_object"}';
const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every((text) => typeof text === 'string');
/** What the answer is to be, where it is no JSON. */
const forms = {
  grammar: z.nullish(z.string('a grammar in EBNF')),
  regex: z.nullish(z.string('a regular expression')),
  choice: z.nullish(z.custom<string[]>(isTexts, 'a list of texts')),
};

/** As `max_tokens`; `n_predict` is llama.cpp's name of it. */
export const mostTokens = z.nullish(integerOrNone(0));

export const optionalInteger = (low: number, high?: number) => z.nullish(integer(low, high));

/** Of sampling what is no number. */
const OTHERS: Readonly<Record<string, z.ZodMiniType>> = {
  logitBias: biases,
  stopTokenIds: tokenIds('a list of token ids'),
};

function samplingField(name: string, { range, most, hasNone }: OptionRow): z.ZodMiniType {
  if (!range) return OTHERS[name] ?? z.unknown();
  if (hasNone) return integerOrNone(range.low ?? 0);
  if (range.integer) return integer(range.low ?? 0, range.high);
  return number(most === undefined ? range : { ...range, high: most });
}

type SamplingSchemas = { readonly [Name in keyof SamplingFields]-?: z.ZodMiniType<SamplingFields[Name]> };
const samplingFields = Object.fromEntries(
  Object.entries(SAMPLING_ROWS).map(([name, row]) => [snake(name), z.nullish(samplingField(name, row))]),
) as unknown as SamplingSchemas;

/** What ends an answer, and how its tokens are drawn; `repeat_penalty` is llama.cpp's and Ollama's name. */
export const drawingFields = {
  ...samplingFields,
  repeat_penalty: samplingFields.repetition_penalty,
  stop: z.nullish(z.union([stopText, z.array(stopText).check(z.maxLength(MAX_STOPS, STOP))], STOP)),
};

/** Fields that both kinds of completion have. */
export const commonFields = {
  model: z.nullish(z.string("the model's name")),
  stream: flag,
  stream_options: z.nullish(
    z.looseObject({ include_usage: flag, include_obfuscation: flag }, 'an object such as {"include_usage": true}'),
  ),
  n: optionalInteger(1, 128),
  max_tokens: mostTokens,
  ...drawingFields,
  priority: optionalInteger(-100, 100),
  speculate: z.nullish(z.enum(SPECULATES, `one of ${SPECULATES.join(', ')}`)),
  ttft_deadline_s: z.nullish(number({ low: 0 }, 'seconds, a number of at least 0')),
  ignore_eos: flag,
  // What the answer is to be: the schema, grammar or expression is read by who holds answers to it.
  response_format: z.nullish(z.looseObject({ type: z.string(FORMAT) }, FORMAT)),
  ...forms,
  guided_json: z.nullish(z.unknown()),
  guided_grammar: forms.grammar,
  guided_regex: forms.regex,
  guided_choice: forms.choice,
  json_schema: z.nullish(z.unknown()),
  structured_outputs: z.nullish(
    z.looseObject(
      { json: z.nullish(z.unknown()), json_object: flag, ...forms },
      'an object such as {"regex": "yes|no"}',
    ),
  ),
};

/** A field that changes nothing here, and what a strict server says of it. */
export interface IgnoredField {
  readonly name: string;
  readonly why: string;
}

/** Names a tool that APIs' own servers have, and this one hasn't. @returns nothing in its place */
export function leftOut(at: string, type: unknown, ignored: IgnoredField[]): [] {
  ignored.push({
    name: `${at}.${shortened(String(type))}`,
    why: `${at} is of type ${show(type)}: this server has no tools of its own; leave it out`,
  });
  return [];
}

/**
 * Reads a request's fields.
 * @returns `ignored`: those that change nothing here: clients of other servers send many
 * @throws ApiError 400 naming the first field at fault and what was expected
 */
export function parseFields<Shape extends z.core.$ZodLooseShape>(
  api: Api,
  schema: z.ZodMiniObject<Shape>,
  body: unknown,
): { readonly fields: z.infer<z.ZodMiniObject<Shape>>; readonly ignored: IgnoredField[] } {
  if (!isObject(body)) throw badRequest(`the body is ${show(body)}; expected a JSON object`);
  checkFieldCount(body, 'the body');
  if (Array.isArray(body.stop)) checkLength(body.stop, MAX_STOPS, 'stop', STOP);
  const parsed = parse(schema, body);
  if (!parsed.success) throw faultAt(parsed.error.issues[0]!, body);
  const ignored: IgnoredField[] = [];
  const look = (known: readonly string[], of: object, within = ''): void => {
    for (const [key, value] of Object.entries(of)) {
      if (!known.includes(within + key)) checkOther(api, within + key, value, ignored, known);
    }
  };
  look(Object.keys(schema.shape), body);
  for (const name of NESTED) {
    const [field, value] = [schema.shape[name], body[name]];
    if (!field || !isObject(value)) continue;
    checkFieldCount(value, name);
    look(namesWithin(field, `${name}.`), value, `${name}.`);
  }
  return { fields: parsed.data, ignored };
}

/** Fields of which those within are looked at: what others have within others is for whoever reads it. */
const NESTED = ['options', 'output_config', 'reasoning', 'stream_options', 'structured_outputs', 'text', 'thinking'];

/** Names that the schema of an object, which may be left out, has within. */
function namesWithin(field: z.core.$ZodType, before: string): string[] {
  const { innerType, shape = {} } = field._zod.def as { readonly innerType?: z.core.$ZodType; readonly shape?: object };
  return innerType ? namesWithin(innerType, before) : Object.keys(shape).map((name) => before + name);
}

/** A list of too many faults makes the parser recurse too deeply. */
function parse<Shape extends z.core.$ZodLooseShape>(schema: z.ZodMiniObject<Shape>, body: unknown) {
  try {
    return schema.safeParse(body);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw badRequest('the body has lists that are too long or nested too deeply');
  }
}

/** @throws ApiError 400 for an object of more fields than any request has */
export function checkFieldCount(value: object, name: string): void {
  const { length } = Object.keys(value);
  if (length > MAX_FIELDS) throw badRequest(`${name} has ${length} fields; expected at most ${MAX_FIELDS}`);
}

/** Before a list is parsed. @throws ApiError 400 */
export function checkLength({ length }: readonly unknown[], most: number, name: string, expected: string): void {
  if (length > most) throw badRequest(`${name} has ${grouped(length)} entries; expected ${expected}`, name);
}

function faultAt({ path, message }: z.core.$ZodIssue, body: unknown): ApiError {
  const name = path.reduce<string>(
    (text, key) => text + (typeof key === 'number' ? `[${key}]` : `${text && '.'}${String(key)}`),
    '',
  );
  const value = path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | null)?.[key], body);
  return badRequest(`${name} is ${value === undefined ? 'missing' : show(value)}; expected ${message}`, name);
}

/** @param known names of which the nearest is told where nobody knows this one */
function checkOther(api: Api, name: string, value: unknown, ignored: IgnoredField[], known: readonly string[]): void {
  const sort = sortOf(api, name);
  if (sort === 'silent' || value === null) return;
  if (sort === undefined) {
    const shown = shortened(name);
    const others = didYouMean(name, known) || ` Known are ${known.join(', ')}`;
    ignored.push({ name: shown, why: `unknown field '${shown}'.${others}` });
    return;
  }
  const { neutral, instead, code } = sort;
  const text = jsonText(value);
  if (neutral.some((each) => jsonText(each) === text)) return;
  const leave = neutral.length > 0 ? `leave it out, or send ${JSON.stringify(neutral[0])}` : 'leave it out';
  const todo = instead === undefined ? leave : `${leave}; ${instead}`;
  throw new ApiError(400, `${name} is not supported by this server; ${todo}`, {
    param: name,
    ...(code !== undefined && { code }),
  });
}

export interface CompletionCall {
  readonly model: string | undefined;
  readonly prompts: readonly Prompt[];
  /** The field that the prompts came in. */
  readonly promptField: 'messages' | 'prompt' | 'input';
  /** The field that says what the answer is to be, where one does. */
  readonly formField?: string | undefined;
  readonly options: Omit<CompletionOptions, 'signal'>;
  readonly stream: boolean;
  /** Of each prompt's answers so many are told, the likeliest, with their logprobs or without. */
  readonly likeliest?: { readonly n: number; readonly logprobs: boolean };
  /** Tools of a chat that are called with a plain text. */
  readonly textTools?: readonly string[];
  /** llama.cpp's: the whole answer has the prompt as the model reads it; it, or the stream's usage, has times. */
  readonly verbose?: boolean;
  readonly timings?: boolean;
  /** The stream ends with the usage. */
  readonly includeUsage: boolean;
  /** What the body says that nobody here knows. */
  readonly ignored: readonly IgnoredField[];
}

type Common = z.infer<z.ZodMiniObject<typeof commonFields>>;

export function callOf(
  fields: Common,
  prompts: readonly Prompt[],
  own: Pick<CompletionCall, 'promptField' | 'ignored'> & {
    readonly maxTokens: number;
    readonly logprobs: number | undefined;
    readonly echo?: boolean | undefined;
    readonly progress?: boolean | null | undefined;
    readonly chat?: ChatOptions | undefined;
  },
): CompletionCall {
  const { form, field: formField } = formOf(fields);
  const options = {
    n: fields.n,
    ...samplingOf({ ...fields, repetition_penalty: fields.repetition_penalty ?? fields.repeat_penalty }),
    stop: fields.stop,
    ignoreEos: fields.ignore_eos,
    priority: fields.priority,
    speculate: fields.speculate,
    firstTokenSeconds: fields.ttft_deadline_s,
    maxTokens: own.maxTokens,
    logprobs: own.logprobs,
    echo: own.echo,
    progress: (fields.stream && own.progress) || undefined,
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
  if (first && second) throw badRequest(`${first[0]} and ${second[0]}: give one of them`, first[0]);
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
  const of = typeof schema === 'string' ? parsed(schema) : schema;
  if (of === undefined) throw badRequest(`${field} is no JSON; expected a JSON schema`, field);
  return { type: 'json_schema', json_schema: { schema: of } };
}
