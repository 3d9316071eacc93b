import { BalanceMeter, solTps } from '../../src/engine/scheduler/index.js';
import { PUBLISHED_FACTS } from './published_run.js';
import type { LoggedIteration } from './simulate.js';

/** A figure of the published baseline beside the simulated one. */
export interface PublishedCheck {
  readonly name: string;
  /** For people. */
  readonly title: string;
  readonly unit: 'iterations' | 'share';
  readonly published: number;
  readonly simulated: number;
  /** Fitted: the lengths were chosen for it. Predicted: it follows. */
  readonly kind: 'fitted' | 'predicted';
}

/** What is said beside the published run's figures, a sentence each. */
export const PUBLISHED_NOTES = [
  "Fitted on the published baseline: the iteration time's two constants (on TPS and SOL TPS), the lengths of outputs (on iterations and last context).",
  'Predicted: the balance ratios, context_wait, full. cost is our own policy; it was never published.',
  "The published baseline's 54.11% is its SOL TPS above its TPS (39,552 / 25,664 - 1), so it may be no balance ratio.",
  '[100, 12000): SOL TPS above TPS in these iterations of the baseline.',
] as const;

/** The first and the one after the last iteration of the stretch that the publication looks at. */
const WINDOW = [100, 12_000] as const;

/** What is published of the baseline beside its throughput, and what a simulated baseline has. @param log of the baseline */
export function publishedChecks(log: readonly LoggedIteration[]): readonly PublishedCheck[] {
  const { iterations, lastContext, windowHeadroom } = PUBLISHED_FACTS;
  const last = log.findLastIndex(({ contextTokens }) => contextTokens > 0);
  return [
    {
      name: 'iterations',
      title: 'iterations',
      unit: 'iterations',
      published: iterations,
      simulated: log.length,
      kind: 'fitted',
    },
    {
      name: 'last_context',
      title: 'last context',
      unit: 'iterations',
      published: lastContext,
      simulated: last,
      kind: 'fitted',
    },
    {
      name: 'window_headroom',
      title: '[100, 12000)',
      unit: 'share',
      published: windowHeadroom,
      simulated: headroom(log.slice(...WINDOW)),
      kind: 'predicted',
    },
  ];
}

/** How much more throughput these iterations would have at perfect balance: SOL TPS over TPS, less 1. */
function headroom(log: readonly LoggedIteration[]): number {
  const meter = new BalanceMeter();
  for (const { tokens, seconds } of log) meter.add(tokens, seconds);
  return solTps(1, meter.summary) - 1;
}
