import type { AdpStudy } from '../adp_study.js';
import { chart, type Point } from './chart.js';

const BARS = 40;
const SIZE = { width: 540, height: 170 };

/** How many requests have prompts, and answers, of which length. */
export const lengthsSection = ({ prompts, answers }: AdpStudy['lengths']): string =>
  `<div class="pair">${lengthChart('prompt', 'blue', prompts)}${lengthChart('answer', 'orange', answers)}</div>`;

function lengthChart(what: string, style: string, lengths: readonly number[]): string {
  const counts = countsOf(lengths);
  const width = Math.max(...lengths) / counts.length;
  const steps = counts.flatMap((count, at): Point[] => [
    [at * width, count],
    [(at + 1) * width, count],
  ]);
  return chart({
    ...SIZE,
    title: `Requests by the tokens of their ${what}`,
    x: { label: `tokens of the ${what}`, range: [0, width * counts.length] },
    y: { label: 'requests', range: [0, Math.max(...counts) * 1.03] },
    marks: [
      { kind: 'band', style, points: [[0, 0], ...steps, [width * counts.length, 0]] },
      { kind: 'line', style, points: steps },
    ],
  });
}

/** Requests in stretches of equal length from 0 to the longest. */
export function countsOf(lengths: readonly number[]): number[] {
  const longest = Math.max(...lengths);
  const counts = new Array<number>(Math.min(BARS, longest)).fill(0);
  for (const length of lengths) counts[Math.ceil((length * counts.length) / longest) - 1]! += 1;
  return counts;
}
