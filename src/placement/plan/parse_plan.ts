/**
 * Room: plans as files and as text for people: read and checked for their form here, printed by describe_plan.ts.
 * stage_kind.ts tells what a stage without a kind is.
 */

import * as z from 'zod/mini';
import { parseForm } from '../../base/form.js';
import { parseJson } from '../../base/json.js';
import { type ArrangementFile, fromZero, parseArrangementFile, planFields } from '../../arrangement/index.js';
import { type Plan, STAGE_KINDS } from '../plan.js';
import { kindOf } from './stage_kind.js';

/** Each schema's error says what to write in its place. */
const whole = z.int('a whole number from 0 on').check(z.minimum(0, 'a whole number from 0 on'));
const list = z.array(whole, 'a list of whole numbers, such as [0, 1]');
const span = z.tuple([whole, whole], 'two whole numbers, first and end: [0, 12] means 0 to 11');

const copy = z.strictObject(
  {
    head: whole,
    share: z.number('a share between 0 and 1').check(z.gt(0, 'a share above 0'), z.lt(1, 'a share below 1')),
  },
  'an object such as {"head": 2, "share": 0.5}',
);
const share = z.strictObject(
  {
    rank: whole,
    heads: list,
    copies: z.optional(z.array(copy, 'a list such as [{"head": 2, "share": 0.5}]')),
    mlp: list,
    experts: list,
    kvHeads: list,
    lanes: list,
    sequences: z.optional(fromZero),
  },
  'an object: what one rank holds',
);
const stage = z.strictObject(
  {
    layers: span,
    kind: z.optional(z.enum(STAGE_KINDS, `one of ${STAGE_KINDS.map((kind) => `"${kind}"`).join(', ')}`)),
    shares: z.array(share, 'a list, one entry per rank'),
    loads: z.optional(z.array(fromZero, 'a list, one number per kv head')),
  },
  'an object',
);
const vocabShare = z.strictObject({ rank: whole, rows: span }, 'an object such as {"rank": 0, "rows": [0, 32000]}');
const vocab = z.array(vocabShare, 'a list such as [{"rank": 0, "rows": [0, 32000]}]');
const schema = z.strictObject(
  {
    ...planFields,
    policy: z.string('the policy\'s name in quotes, such as "tp"'),
    worldSize: z.int('the number of ranks').check(z.minimum(1, 'the number of ranks, at least 1')),
    stages: z.array(stage, 'a list, one entry a run of layers'),
    embedding: vocab,
    head: vocab,
  },
  'a plan: an object with version, policy, worldSize, stages, embedding and head',
);

/**
 * Reads a plan from JSON text or from what JSON.parse gave. Only its form is checked: `checkPlan` tells whether it fits a model.
 * Stages that don't say their kind get the one that they come to.
 *
 * @param name how messages call it: its file
 * @throws SplitkvError `usage` with the path of the first fault and what to write there; `format` for text that isn't JSON.
 */
export function parsePlan(json: unknown, name = 'plan'): Plan {
  return withKinds(parseForm(schema, json, name, keysAt));
}

const withKinds = (plan: z.infer<typeof schema>): Plan => ({
  ...plan,
  stages: plan.stages.map((stage) => ({ ...stage, kind: stage.kind ?? kindOf(stage.shares) })),
});

/** The keys of a plan's object at this path. */
function keysAt(path: readonly PropertyKey[]): string[] {
  if (path.length === 0) return Object.keys(schema.shape);
  if (path[0] !== 'stages') return Object.keys(vocabShare.shape);
  if (path.includes('copies')) return Object.keys(copy.shape);
  return Object.keys(path.includes('shares') ? share.shape : stage.shape);
}

/** What a plan's file may hold: a plan, or an arrangement of heads, which a model's shape makes a plan of (`arrangedPlan`). */
export type PlanFile = Plan | ArrangementFile;

export const isArrangement = (file: PlanFile): file is ArrangementFile => 'placement' in file;

/**
 * Reads a plan or an arrangement, from JSON text or from what JSON.parse gave.
 * @throws as `parsePlan` or `parseArrangementFile`
 */
export function parsePlanFile(json: unknown, name = 'plan'): PlanFile {
  const value = typeof json === 'string' ? parseJson(json, name) : json;
  const { policy, stages, placement } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const arranged = placement !== undefined || (policy === 'arranged' && stages === undefined);
  return arranged ? parseArrangementFile(value, name) : parsePlan(value, name);
}
