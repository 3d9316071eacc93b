import { alignedTable } from '../src/base/aligned_table.js';
import { type Estimate, pairedRatio } from './statistics.js';
import { ratio } from './table.js';

/** The least that `npm run pace` lets pass. */
export const LEAST_PACE = 0.97;

/** What one turn measured: tokens (or first tokens) per second, and per second of CPU time where that is known. */
export interface PaceSample {
  readonly rate: number;
  readonly cpuRate?: number;
}

/** Samples of the same thing by two trees: each pair was taken one right after the other. */
export interface PacePairs {
  readonly name: string;
  readonly ours: readonly PaceSample[];
  readonly theirs: readonly PaceSample[];
}

export interface PaceRow {
  readonly name: string;
  readonly turns: number;
  /** Of rates, ours over theirs: above 1 is faster now. */
  readonly ratio: Estimate;
  /** The same of tokens per second of CPU time. */
  readonly cpu?: Estimate;
  readonly verdict: 'slower' | 'perhaps slower' | 'as fast' | 'faster';
}

/** The ratios of each thing measured. */
export function paceRows(measured: readonly PacePairs[]): PaceRow[] {
  return measured.map(({ name, ours, theirs }) => {
    const of = pairedRatio(
      ours.map(({ rate }) => rate),
      theirs.map(({ rate }) => rate),
    );
    const used = [...ours, ...theirs].map(({ cpuRate }) => cpuRate);
    const cpu = used.every((rate) => rate !== undefined)
      ? pairedRatio(used.slice(0, ours.length) as number[], used.slice(ours.length) as number[])
      : undefined;
    return { name, turns: ours.length, ratio: of, ...(cpu && { cpu }), verdict: verdictOf(of) };
  });
}

function verdictOf({ value, low, high }: Estimate): PaceRow['verdict'] {
  if (value < LEAST_PACE) return high < LEAST_PACE ? 'slower' : 'perhaps slower';
  return low > 1 ? 'faster' : 'as fast';
}

export const paceTable = (rows: readonly PaceRow[]): string =>
  alignedTable(
    [
      ['', 'turns', 'pace', 'by CPU time', ''],
      ...rows.map(({ name, turns, ratio: of, cpu, verdict }) => [
        name,
        String(turns),
        ratio(of),
        cpu ? ratio(cpu) : '-',
        verdict,
      ]),
    ],
    4,
  );
