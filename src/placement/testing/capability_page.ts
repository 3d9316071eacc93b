import { readFileSync } from 'node:fs';
import { format, type FormatOptions } from 'oxfmt';
import { arrangedPlan } from '../make/arranged_plan.js';
import { type Exclusion, exclusionOf, EXCLUSIONS, type Feature, FEATURES } from '../check/capabilities.js';
import { makePlan } from '../make/make_plan.js';
import type { CopySharing } from '../../arrangement/types.js';
import type { Plan } from '../plan.js';
import { parsePolicy, POLICIES } from '../make/policy.js';
import { randomArrangement } from './arrangements.js';
import { gqaShape } from './shapes.js';

/** docs/capabilities.md, from the data: `npm run capabilities` writes it, a test compares. */

interface Row {
  readonly name: string;
  readonly plan: Plan;
  /** What holds of it whatever the model. */
  readonly features: readonly Feature[];
}

const COLUMNS: readonly (readonly [Feature, string])[] = [
  ['latent', 'MLA'],
  ['experts', 'experts'],
  ['dense', 'no experts'],
  ['compression', '`kvBudget`'],
  ['prefixCaching', '`prefixCaching`'],
  ['prefillWorker', '`prefill`'],
  ['attentionDp', '`attentionDpConfig`'],
  ['moves', 'moves between slots'],
  ['rankMoves', 'between ranks'],
];
const MODEL: readonly Feature[] = ['gqa', 'latent', 'experts', 'dense'];
const OPTIONS: readonly (readonly [Feature, string])[] = [
  ['compression', '`kvBudget`'],
  ['prefixCaching', '`prefixCaching`'],
  ['prefillWorker', '`prefill`'],
  ['moves', 'moves between slots'],
  ['latent', 'MLA'],
  ['workers', '`workers`'],
  ['virtualRanks', '`virtualRanks`'],
];

const shape = gqaShape(8, { numExperts: 8, numLayers: 8 });
const dense = gqaShape(8, { numLayers: 8 });

function rows(): Row[] {
  const named = POLICIES.map((name): Row => ({
    name: `\`${name}\``,
    // Two of a group, so that there are several groups.
    plan: makePlan(name, name === 'single' ? 1 : 8, shape, name.includes('token x sp') ? { sequence: 2 } : {}),
    features: parsePolicy(name).features,
  }));
  const arranged = (name: string, copies: number, sharing: CopySharing): Row => ({
    name,
    plan: arrangedPlan(randomArrangement(dense, 4, { seed: 1, copies }), dense, sharing),
    features: ['arranged'],
  });
  return [
    ...named,
    arranged('`arranged`', 0, 'lanes'),
    arranged('`arranged`, copies by sequences', 6, 'sequences'),
    arranged('`arranged`, copies by lanes', 6, 'lanes'),
  ];
}

/** Those of a feature for the same reason are one. */
const GROUPS: Exclusion[][] = [];
for (const exclusion of EXCLUSIONS) {
  const alike = ({ of: [a], unless, because, instead }: Exclusion): string =>
    JSON.stringify([a, unless, because, instead]);
  const group = GROUPS.find(([first]) => alike(first!) === alike(exclusion));
  if (group) group.push(exclusion);
  else GROUPS.push([exclusion]);
}

const cell = (exclusion: Exclusion | undefined): string =>
  exclusion ? `no: ${GROUPS.findIndex((group) => group.includes(exclusion)) + 1}` : 'yes';
const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
const table = (head: readonly string[], body: readonly (readonly string[])[]): string =>
  [line(head), line(head.map(() => '---')), ...body.map(line)].join('\n');

/** What a feature implies: a sequence comes to another rank's slot. */
const implied = (feature: Feature): Feature[] => (feature === 'rankMoves' ? ['moves', feature] : [feature]);

/** Of a row whatever the rest of the run. */
const misfitOf = ({ plan, features }: Row, column: Feature): Exclusion | undefined =>
  MODEL.includes(column) ? exclusionOf([...features, column]) : exclusionOf(implied(column), plan);

/** Plans that go with the same are one row; what all go with is a sentence. */
function planTable(): string {
  const all = rows();
  const differing = COLUMNS.filter(([column]) => all.some((row) => misfitOf(row, column)));
  const names = new Map<string, string[]>();
  for (const row of all) {
    const cells = differing.map(([column]) => cell(misfitOf(row, column))).join(' | ');
    names.set(cells, [...(names.get(cells) ?? []), row.name]);
  }
  const free = COLUMNS.filter((column) => !differing.includes(column)).map(([, name]) => name);
  return `Every plan goes with ${free.join(' and ')}.\n\n${table(
    ['plans', ...differing.map(([, name]) => name)],
    [...names].map(([cells, alike]) => [alike.join(', '), cells]),
  )}`;
}

const isPrefill = (...of: readonly Feature[]): boolean =>
  of.every((feature) => implied(feature).includes('prefillWorker'));

/** Each pair once. */
function optionTable(): string {
  const rest = OPTIONS.slice(1);
  return table(
    ['', ...rest.map(([, name]) => name)],
    OPTIONS.slice(0, -1).map(([a, name], row) => [
      name,
      ...rest.map(([b], column) =>
        column < row || isPrefill(a, b) ? '' : cell(exclusionOf(new Set([...implied(a), ...implied(b)]))),
      ),
    ]),
  );
}

/** A plan, an option or MLA by its name; the rest in words. */
const nameOf = (feature: Feature): string =>
  `**${/\((plan \w+|MLA|prefill|workers|[a-z]+[A-Z]\w*)\)$/.exec(FEATURES[feature])?.[1] ?? FEATURES[feature]}**`;

function reasons(): string {
  return GROUPS.map((group, index) => {
    const [{ of, unless, because, instead }] = group as [Exclusion];
    const others = group.map(({ of: [, b] }) => nameOf(b)).join(', ');
    return `${index + 1}. ${nameOf(of[0])} with ${others}${unless ? `, except with ${nameOf(unless)}` : ''}: ${because}; ${instead}.`;
  }).join('\n');
}

/** Features that nothing excludes. */
const free = (): string =>
  (Object.keys(FEATURES) as Feature[])
    .filter((feature) => !EXCLUSIONS.some(({ of }) => of.includes(feature)))
    .map((feature) => FEATURES[feature])
    .join('; ');

const page = (): string => `# What goes together

<!-- Written by \`npm run capabilities\` from src/placement/check/capabilities.ts: change that file, not this page. -->

Which plans, models and options run together, for whoever chooses a plan or gets a refusal. For example,
\`--plan arranged\` of a model with MLA is refused with reason 3 below, before anything is loaded.

These go with everything: ${free()}.

## Plans

A number is the reason why not, [below](#why). "Moves" are those of running sequences: where there is a
number, they stay in the slot, or on the rank, where they began. \`tp\` of a model with MLA is \`tp+sp\`.
\`token x sp\` with one group of ranks has no rank to choose for \`attentionDpConfig\`.

${planTable()}

## Options

${optionTable()}

## Why

${reasons()}
`;

/** The page as the formatter leaves it. */
export async function capabilityPage(): Promise<string> {
  const { overrides } = JSON.parse(readFileSync('.oxfmtrc.json', 'utf8')) as {
    readonly overrides: readonly { readonly files: readonly string[]; readonly options: FormatOptions }[];
  };
  const options = overrides.find(({ files }) => files.includes('**/*.md'))?.options;
  const { code, errors } = await format('capabilities.md', page(), options);
  if (errors.length > 0) throw new Error(errors[0]!.message);
  return code;
}
