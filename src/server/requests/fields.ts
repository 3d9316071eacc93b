import * as z from 'zod/mini';
import { didYouMean } from '../../base/errors.js';
import { isObject, jsonText, shortened, show } from '../../base/json.js';
import { grouped } from '../../base/math.js';
import { snake } from '../../base/names.js';
import { isWithin, type NumberRange, rangeText } from '../../base/options.js';
import type { OptionRow } from '../../engine/contracts/options/row.js';
import { SAMPLING_ROWS } from '../../engine/contracts/options/sampling_rows.js';
import type { SamplingFields } from '../../index.js';
import { ApiError, badRequest } from '../api_error.js';
import { type Api, NESTED, sortOf } from './field_table.js';

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
const STOP = `a text, or a list of at most ${MAX_STOPS} texts, none of them empty`;
const ONE_STOP = 'a text of at least one character';
const stopText = z.string(ONE_STOP).check(z.minLength(1, ONE_STOP));

const BIASES = 'an object of biases by token id, such as {"50256": -100}';
const STOP_IDS = 'a list of token ids';

/** By one look each: there may be as many as a vocabulary has, and as many faults. */
const biases = z.custom<Record<string, number>>(
  (value) => isObject(value) && Object.entries(value).every(([id, bias]) => /^\d+$/.test(id) && Number.isFinite(bias)),
  BIASES,
);
const stopIds = z.custom<number[]>(
  (value) => Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0),
  STOP_IDS,
);

const FORMAT = 'an object such as {"type": "json_object"}';
const CHOICES = 'a list of texts';
const choices = z.custom<string[]>(
  (value) => Array.isArray(value) && value.every((text) => typeof text === 'string'),
  CHOICES,
);

/** As `max_tokens`; `n_predict` is llama.cpp's name of it. */
export const mostTokens = z.nullish(integerOrNone(0));

export const optionalInteger = (low: number, high?: number) => z.nullish(integer(low, high));

/** Of sampling what is no number. */
const OTHERS: Readonly<Record<string, z.ZodMiniType>> = { logitBias: biases, stopTokenIds: stopIds };

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

/** Fields that both kinds of completion have. */
export const commonFields = {
  model: z.nullish(z.string("the model's name")),
  stream: flag,
  stream_options: z.nullish(
    z.looseObject({ include_usage: flag, include_obfuscation: flag }, 'an object such as {"include_usage": true}'),
  ),
  n: optionalInteger(1, 128),
  max_tokens: mostTokens,
  stop: z.nullish(z.union([stopText, z.array(stopText).check(z.maxLength(MAX_STOPS, STOP))], STOP)),
  ...samplingFields,
  priority: optionalInteger(-100, 100),
  ttft_deadline_s: z.nullish(number({ low: 0 }, 'seconds, a number of at least 0')),
  ignore_eos: flag,
  // What the answer is to be: the schema, grammar or expression is read by who holds answers to it.
  response_format: z.nullish(z.looseObject({ type: z.string(FORMAT) }, FORMAT)),
  grammar: z.nullish(z.string('a grammar in EBNF')),
  regex: z.nullish(z.string('a regular expression')),
  choice: z.nullish(choices),
  guided_json: z.nullish(z.unknown()),
  guided_grammar: z.nullish(z.string('a grammar in EBNF')),
  guided_regex: z.nullish(z.string('a regular expression')),
  guided_choice: z.nullish(choices),
  json_schema: z.nullish(z.unknown()),
  structured_outputs: z.nullish(
    z.looseObject(
      {
        json: z.nullish(z.unknown()),
        json_object: flag,
        regex: z.nullish(z.string('a regular expression')),
        choice: z.nullish(choices),
        grammar: z.nullish(z.string('a grammar in EBNF')),
      },
      'an object such as {"regex": "yes|no"}',
    ),
  ),
};

/** A field that this server doesn't know, and what a strict one says of it. */
export interface IgnoredField {
  readonly name: string;
  readonly why: string;
}

/**
 * Reads a request's fields.
 * @param ignored takes hints, and those that nobody here knows: clients of other servers send many
 * @throws ApiError 400 naming the first field at fault and what was expected
 */
export function parseFields<Shape extends z.core.$ZodLooseShape>(
  api: Api,
  schema: z.ZodMiniObject<Shape>,
  body: unknown,
  ignored: IgnoredField[],
): z.infer<z.ZodMiniObject<Shape>> {
  if (!isObject(body)) throw badRequest(`the body is ${show(body)}; expected a JSON object`);
  checkFieldCount(body, 'the body');
  if (Array.isArray(body.stop)) checkLength(body.stop, MAX_STOPS, 'stop', STOP);
  const parsed = parse(schema, body);
  if (!parsed.success) throw faultAt(parsed.error.issues[0]!, body);
  const known = Object.keys(schema.shape);
  for (const [name, value] of Object.entries(body)) {
    if (!known.includes(name)) checkOther(api, name, value, ignored, known);
    else if (NESTED.has(name) && isObject(value))
      for (const key of Object.keys(value)) checkOther(api, `${name}.${key}`, value[key], ignored);
  }
  return parsed.data;
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

/** @param known where a name that nobody knows is told, with the nearest of these */
function checkOther(api: Api, name: string, value: unknown, ignored: IgnoredField[], known?: readonly string[]): void {
  const sort = sortOf(api, name);
  if (sort === 'silent' || (sort === undefined && !known)) return;
  if (sort === undefined) {
    const shown = shortened(name);
    const others = didYouMean(name, known!) || ` Known are ${known!.join(', ')}`;
    ignored.push({ name: shown, why: `unknown field '${shown}'.${others}` });
    return;
  }
  const { neutral = [], instead, code } = sort === 'harmless' ? {} : sort;
  const text = jsonText(value);
  if (value === null || neutral.some((each) => jsonText(each) === text)) return;
  if (sort === 'harmless') {
    ignored.push({ name, why: `${name} changes nothing of an answer of this server; leave it out` });
    return;
  }
  const leave = neutral.length > 0 ? `leave it out, or send ${JSON.stringify(neutral[0])}` : 'leave it out';
  const todo = instead === undefined ? leave : `${leave}; ${instead}`;
  throw new ApiError(400, `${name} is not supported by this server; ${todo}`, {
    param: name,
    ...(code !== undefined && { code }),
  });
}
