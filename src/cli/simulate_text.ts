import type { AdpRow } from '../simulate/adp_row.js';
import type { AdpStudy } from '../simulate/adp_study.js';
import type { PublishedRow } from '../simulate/published_run.js';

/** The table of a study, the published rows beside it where they are of the same run. */
export function describeStudy({ rows, published }: AdpStudy, samePublished: boolean): string {
  const lines = [
    row('', 'TPS', 'balance', 'SOL TPS', 'speedup', 'TTFT s', 'iterations'),
    ...rows.map((each) => row(...cells(each), each.mean_ttft_s.toFixed(2), whole(each.iterations))),
  ];
  if (samePublished) {
    lines.push('', row('published', 'TPS', 'balance', 'SOL TPS', 'speedup'));
    lines.push(...published.map((each) => row(...cells(each))));
    lines.push(
      '',
      'Fitted on the published baseline: the constants of the iteration time, the tails of the lengths. Predicted: context_wait, full.',
      'cost is our own policy; it was never published.',
    );
  }
  lines.push(
    '',
    'A simulation: nothing here is measured. balance: iterations weighed by the tokens of their largest rank.',
  );
  return `${lines.join('\n')}\n`;
}

type Cells = [name: string, tps: string, balance: string, sol: string, speedup: string];

const cells = ({ name, tps, balance, sol_tps, speedup }: AdpRow | PublishedRow): Cells => [
  name,
  whole(tps),
  `${(balance * 100).toFixed(2)}%`,
  whole(sol_tps),
  speedup.toFixed(2),
];

const row = (name: string, ...values: readonly string[]): string =>
  name.padEnd(14) + values.map((value) => value.padStart(11)).join('');

const whole = (value: number): string => Math.round(value).toLocaleString('en-US');
