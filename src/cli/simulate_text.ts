import type { AdpRow } from '../simulate/adp_row.js';
import type { AdpStudy } from '../simulate/adp_study.js';
import type { PublishedRow } from '../simulate/published_run.js';
import type { MeasuredStudy } from './adp/measure_adp.js';

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

/** The table of a study that really ran: each figure as measured, and beside it as simulated. */
export function describeMeasured({ measured, rows, parameters }: MeasuredStudy): string {
  const heads = ['balance', 'TPS', 'SOL TPS', 'TTFT s', 'iterations'];
  const figures = (each: AdpRow): string[] => [
    `${(each.balance * 100).toFixed(2)}%`,
    whole(each.tps),
    whole(each.sol_tps),
    each.mean_ttft_s.toFixed(2),
    whole(each.iterations),
  ];
  const lines = [
    row('', ...heads.flatMap((head) => [head, 'simulated'])),
    ...measured.map((each, at) => {
      const simulated = figures(rows[at]!);
      return row(each.name, ...figures(each).flatMap((figure, index) => [figure, simulated[index]!]));
    }),
    '',
    `${parameters['requests'] as number} requests on ${parameters['model'] as string}, ${parameters['ranks'] as number} ranks` +
      `${parameters['virtual_ranks'] === true ? ' of one device, so that times say little of balance' : ''}. Simulated times: ` +
      `${(parameters['iteration_seconds'] as number).toPrecision(3)} s an iteration and ` +
      `${(parameters['token_seconds'] as number).toPrecision(3)} s a token, from the measured baseline unless given.`,
  ];
  return `${lines.join('\n')}\n`;
}
