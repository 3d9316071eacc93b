import * as z from 'zod/mini';
import { usageError } from '../src/base/errors.js';
import { parseForm } from '../src/base/form.js';
import { decimals, settingText } from './table.js';

/** What GPUs answered to `--suite gpu` or to the page Check, as files that people send: those of bench/results/gpu. */

const text = z.string('a text').check(z.maxLength(4000, 'a text of at most 4000 characters'));
const amount = z.number('a number of at least 0').check(z.minimum(0, 'a number of at least 0'));
const listOf = <T extends z.ZodMiniType>(item: T, what: string) =>
  z.array(item, `a list of ${what}`).check(z.maxLength(2000, `at most 2000 ${what}`));

const adapter = z.looseObject(
  {
    name: text,
    vendor: z.optional(text),
    architecture: z.optional(text),
    device: z.optional(text),
    description: z.optional(text),
    software: z.boolean('true or false'),
    variants: z.enum(['hardware', 'software'], "'hardware' or 'software'"),
    fast: z.optional(listOf(text, 'ways to multiply')),
  },
  'an adapter with name, software and variants',
);

const schema = z.strictObject(
  {
    suite: z.literal('gpu', "'gpu'"),
    environment: z.strictObject(
      {
        date: z
          .string("a date such as '2026-01-31T12:00:00.000Z'")
          .check(z.refine((date) => !Number.isNaN(Date.parse(date)), "a date such as '2026-01-31T12:00:00.000Z'")),
        adapters: listOf(adapter, 'adapters').check(z.minLength(1, 'the adapter that was measured')),
        cpu_threads: amount,
        version: z.optional(text),
        commit: z.optional(text),
        /** Of the command line. */
        host: z.optional(text),
        node: z.optional(text),
        chrome: z.optional(text),
        os: z.optional(text),
        cpu: z.optional(text),
        memory_bytes: z.optional(amount),
        /** Of a page. */
        browser: z.optional(text),
        system: z.optional(text),
        note: z.optional(text),
      },
      'where it was measured: an object with date, adapters and cpu_threads',
    ),
    results: listOf(
      z.strictObject(
        {
          part: text,
          title: text,
          host: z.enum(['node', 'chrome', 'page'], "'node', 'chrome' or 'page'"),
          seconds: amount,
          rows: listOf(z.record(text, z.union([text, z.number()], 'a text or a number'), 'a row of a table'), 'rows'),
          left_out: z.optional(text),
        },
        'a part with part, title, host, seconds and rows',
      ),
      'parts',
    ).check(z.minLength(1, 'at least one part')),
  },
  'what `--suite gpu` or the page Check wrote: an object with suite, environment and results',
);

export type Submission = z.infer<typeof schema>;

/** For whoever checks files otherwise: bench/results/gpu/schema.json. */
export const submissionSchema = (): object => z.toJSONSchema(schema);

/**
 * Reads what somebody sent.
 * @param name how messages call it: its file
 * @throws SplitkvError `usage` with the path of the first fault and what belongs there; `format` for text that isn't JSON
 */
export const readSubmission = (json: unknown, name: string): Submission =>
  parseForm(schema, json, name, Object.keys(schema.shape));

/** As `readSubmission`, of what may stay in bench/results/gpu: measured on a GPU. */
export function readGpuSubmission(json: unknown, name: string): Submission {
  const submission = readSubmission(json, name);
  const cpu = submission.environment.adapters.find(({ software }) => software);
  if (cpu) throw usageError(`${name}: ${cpu.name} runs on the CPU; only what a GPU has measured is kept`);
  return submission;
}

/** nvidia-ampere-2026-01-31.json */
export function submissionFile({ environment: { adapters, date } }: Submission): string {
  const name = adapters[0]!.name.toLowerCase().replace(/[^a-z0-9]+/g, '-');
  return `${name.slice(0, 60).replace(/^-|-$/g, '')}-${date.slice(0, 10)}.json`;
}

/** What one of them answered. */
interface Answer {
  /** The adapter, where it ran, and the runtime where it isn't said to be ours. */
  readonly by: string;
  readonly value: number;
  /** Besides, of the same row. */
  readonly note: string;
}

/** Something that was asked, and the answers side by side. */
export interface Asked {
  readonly what: string;
  readonly unit: string;
  readonly answers: readonly Answer[];
}

export interface AskedPart {
  readonly title: string;
  readonly asked: readonly Asked[];
}

const MEASURED = /\b(us|ms|GB\/s|GFLOP\/s|tokens\/s)\b|^%/;
/** Columns that don't tell what was asked. */
const ASIDE = [
  'tuning',
  'plan',
  'runtime',
  'device',
  'cases',
  'wrong',
  'first',
  'way',
  'same',
  'sha256',
  'of it head',
  'times the shortest',
  'ours / it',
  'from',
  'to',
];
const WHERE = { node: 'Node', chrome: 'Chrome', page: 'a page' };

/** `name`s of one submission each; equal ones get their day. */
export function namesOf(submissions: readonly Submission[]): string[] {
  const names = submissions.map(({ environment: { adapters } }) => adapters[0]!.name);
  return names.map((name, at) =>
    names.indexOf(name) === names.lastIndexOf(name)
      ? name
      : `${name}, ${submissions[at]!.environment.date.slice(0, 16).replace('T', ' ')}`,
  );
}

/** Everything that was measured, by part, each thing with all answers: of several plans of a kernel the quickest. */
export function sideBySide(submissions: readonly Submission[]): AskedPart[] {
  const names = namesOf(submissions);
  const parts = new Map<
    string,
    { title: string; asked: Map<string, { unit: string; answers: Map<string, Answer> }> }
  >();
  for (const [at, { results }] of submissions.entries()) {
    for (const { part, title, host, rows } of results) {
      const own = parts.get(part) ?? { title, asked: new Map() };
      parts.set(part, own);
      for (const row of rows) {
        const about = Object.entries(row).filter(([column]) => !MEASURED.test(column) && !ASIDE.includes(column));
        const by = `${names[at]!}, ${WHERE[host]}${row['runtime'] === undefined ? '' : `: ${row['runtime']}`}`;
        const shares = Object.entries(row).filter(([column]) => column.startsWith('%'));
        const note = shares.map(([column, share]) => `${decimals(Number(share))}${column}`).join(', ');
        for (const unit of drawnOf(row)) {
          const value = row[unit];
          if (typeof value !== 'number') continue;
          const what = settingText(Object.fromEntries(about)) || title;
          const key = `${what}\n${unit}`;
          const asked = own.asked.get(key) ?? { unit, answers: new Map<string, Answer>() };
          own.asked.set(key, asked);
          const known = asked.answers.get(by)?.value;
          if (known === undefined || (isTime(unit) ? value < known : value > known))
            asked.answers.set(by, { by, value, note });
        }
      }
    }
  }
  return [...parts.values()].flatMap(({ title, asked }) =>
    asked.size === 0
      ? []
      : {
          title,
          asked: [...asked].map(([key, { unit, answers }]) => ({
            what: key.slice(0, key.lastIndexOf('\n')),
            unit,
            answers: [...answers.values()],
          })),
        },
  );
}

/** Less is better. */
export const isTime = (unit: string): boolean => /\b(us|ms)\b/.test(unit);

/** Of a row's columns those that are drawn: a time says what rates say, too, and tokens a second what their times do. */
function drawnOf(row: Submission['results'][number]['rows'][number]): string[] {
  const measured = Object.keys(row).filter((column) => MEASURED.test(column) && !column.startsWith('%'));
  if (measured.includes('us')) return ['us'];
  const speeds = measured.filter((column) => /tokens\/s/.test(column));
  return speeds.length > 0 ? speeds : measured;
}

/** Whether it is right: kernels against their references, and equal bits whatever the plan. */
export function verdictOf({ results }: Submission): string {
  const rows = (part: string) => results.filter((result) => result.part === part).flatMap((result) => result.rows);
  const kernels = rows('correct');
  const wrong = kernels.filter((row) => Number(row['wrong']) > 0);
  const ways = rows('bits');
  const other = ways.filter((row) => row['same'] !== 'yes');
  return [
    ...(kernels.length === 0 ? [] : [`${kernels.length - wrong.length} of ${kernels.length} kernels right`]),
    ...(wrong.length === 0 ? [] : [`wrong: ${wrong.map((row) => row['kernel']).join(', ')}`]),
    ...(ways.length === 0
      ? []
      : [`the same bits in ${ways.length - other.length} of ${ways.length} ways to run a model`]),
  ].join('; ');
}
