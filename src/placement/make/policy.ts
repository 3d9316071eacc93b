/**
 * Room: how plans are made. This file is the table of policies; make_plan.ts makes the plan of one, stage_form.ts has
 * the forms that the policies of the table share, and arranged_plan.ts follows a placement of heads.
 */

import { didYouMean, usageError } from '../../base/errors.js';
import { type Feature, misfit, wordFeatures } from '../check/capabilities.js';
import type { ModelShape } from '../plan.js';
import { cutStage, type StageCut } from './stage_cut.js';
import * as forms from './stage_form.js';

/** Cuts a stage over so many ranks, or says why it can't be. `wanted` are degrees that the caller asks for. */
type StageMaker = (ranks: number, shape: ModelShape, wanted: forms.WantedForm) => StageCut | string;

/** What makes a policy known: to makers and checkers, the planner, the command line, pages and docs/capabilities.md. */
export interface PolicyRow {
  /** Words joined by 'x' or '+', as plans and messages write it. A policy of its own has a word of its own. */
  readonly name: string;
  /** Other sets of words that mean the same plan. */
  readonly aliases?: readonly string[];
  readonly stage: StageMaker;
  /** What its plans have on enough ranks, beside what the words bring along (capabilities.ts). */
  readonly features?: readonly Feature[];
  /** Listed as `pp x NAME` too. */
  readonly pipeline?: boolean;
}

const by =
  (form: forms.FormMaker): StageMaker =>
  (ranks, shape, wanted) => {
    const made = form(ranks, shape, wanted);
    return typeof made === 'string' ? made : cutStage(made, ranks, shape);
  };

/**
 * 'tp x ep' is 'tp' and 'sp x ep' is 'ep': tp spreads the experts anyway, and ep the lanes; with 'adp' experts are spread, too. Such names still ask
 * for a model with experts.
 */
const rows: PolicyRow[] = [
  { name: 'single', stage: by(forms.single) },
  { name: 'tp', aliases: ['tp x ep'], stage: by(forms.tensor), pipeline: true },
  { name: 'sp', stage: by(forms.sequence), pipeline: true },
  { name: 'tp+sp', aliases: ['tp x sp x ep'], stage: by(forms.hybrid), pipeline: true },
  // Alone, ep splits what sp does.
  { name: 'ep', aliases: ['sp x ep'], stage: by(forms.experts), features: ['splitChunks'], pipeline: true },
  { name: 'token', stage: by(forms.token(false, 1)), pipeline: true },
  { name: 'tp x token', stage: by(forms.token(false)), pipeline: true },
  { name: 'token x sp', stage: by(forms.token(true, 1)), pipeline: true },
  { name: 'tp x token x sp', stage: by(forms.token(true)), pipeline: true },
  { name: 'adp', aliases: ['adp x ep'], stage: by(forms.attentionData), pipeline: true },
  { name: 'adp x tp', aliases: ['adp x tp x ep'], stage: by(forms.dataGroups(forms.tensor)) },
  { name: 'adp x sp', aliases: ['adp x sp x ep'], stage: by(forms.dataGroups(forms.sequence)) },
  { name: 'adp x tp+sp', aliases: ['adp x tp x sp x ep'], stage: by(forms.dataGroups(forms.hybrid)) },
];

const listed = (): string[] => [
  ...rows.map(({ name }) => name),
  'pp',
  ...rows.flatMap(({ name, pipeline }) => (pipeline ? [`pp x ${name}`] : [])),
];

/** Every policy by its own name. */
export const POLICIES: readonly string[] = listed();

/** Adds a policy beside those of the table. Before its plans are made. */
export function registerPolicy(row: PolicyRow): void {
  rows.push(row);
  (POLICIES as string[]).splice(0, Infinity, ...listed());
}

/** Plans that are made from heads' loads, by a search, and not by a policy of the table. */
export const ARRANGED: readonly string[] = ['arranged', 'pp x arranged'];

export const isArranged = (name: unknown): name is string =>
  typeof name === 'string' && arrangedName(name) !== undefined;

const arrangedName = (name: string): string | undefined => ARRANGED.find((other) => keyOf(other) === keyOf(name));

/** A name's words, whatever their order and what joins them. */
const keyOf = (name: string): string => wordsOf(name).toSorted().join();

/** What a name means, whoever makes its plans. @throws as `parsePolicy` */
export function readPolicyName(name: string): Pick<Policy, 'name' | 'pipeline' | 'features'> {
  const arranged = arrangedName(name);
  if (arranged === undefined) return parsePolicy(name);
  const words = wordsOf(arranged);
  return { name: arranged, pipeline: words.includes('pp'), features: wordFeatures(words) };
}

export interface Policy {
  readonly name: string;
  readonly pipeline: boolean;
  readonly stage: StageMaker;
  readonly features: readonly Feature[];
}

const wordsOf = (name: string): string[] =>
  name
    .trim()
    .toLowerCase()
    .split(/[\s,+*x×]+/);

/**
 * Reads a policy's name: its words in any order, joined by 'x', '*', '+' or a comma.
 * @throws SplitkvError `usage` for a name that is none, or words that don't go together.
 */
export function parsePolicy(name: string): Policy {
  const words = wordsOf(name);
  const all = [...POLICIES, ...ARRANGED];
  const unknown = (): Error => usageError(`plan '${name}': use ${all.join(', ')}.${didYouMean(name, all)}`);
  const known = new Set(rows.flatMap((row) => [row.name, ...(row.aliases ?? []), ...ARRANGED].flatMap(wordsOf)));
  const repeated = new Set(words).size < words.length || (words.includes('single') && words.length > 1);
  if (repeated || words.some((word) => !known.has(word))) throw unknown();
  const why = misfit(wordFeatures(words));
  if (why !== undefined) throw usageError(`plan '${name}': ${why}`);
  if (words.includes('arranged')) throw fromLoads(name, words);
  const pipeline = words.includes('pp');
  const inner = words.filter((word) => word !== 'pp');
  const wanted = keyOf(inner.join() || 'single');
  const row = rows.find(({ name: own, aliases = [] }) => [own, ...aliases].some((other) => keyOf(other) === wanted));
  if (!row) throw unknown();
  return {
    name: !pipeline ? row.name : inner.length === 0 ? 'pp' : `pp x ${row.name}`,
    pipeline,
    stage: row.stage,
    features: [...wordFeatures(words), ...(row.features ?? [])],
  };
}

function fromLoads(name: string, words: readonly string[]): Error {
  const other = words.find((word) => word !== 'arranged' && word !== 'pp');
  if (other !== undefined) {
    return usageError(
      `plan '${name}': arranged plans cut heads, MLP segments and experts themselves, and have no '${other}': use pp x arranged, or ` +
        'arranged alone',
    );
  }
  return usageError(
    `plan '${name}' is made from loads: give --plan the file that \`splitkv arrange --out FILE\` writes` +
      (words.length > 1 ? ', with --pipeline for stages' : ''),
  );
}
