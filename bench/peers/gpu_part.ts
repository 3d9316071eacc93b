import { SplitkvError } from '../../src/base/errors.js';
import type { LeftOut } from './peer_model.js';
import type { PeerResult } from './peer_result.js';
import type { GpuResult, GpuRow } from '../suites/gpu.js';

const rowOf = ({ task, runtime, device, tokens = 0, unit, value, speed_ratio: ours }: PeerResult): GpuRow => ({
  task,
  runtime,
  device,
  tokens,
  [unit]: value,
  'ours / it': ours.value,
  from: ours.low,
  to: ours.high,
});

/**
 * Other runtimes on the same weights as a part of the suite `gpu`; where they can't be measured, it says why.
 * @param run the suite `peers`
 * @param late what to say of a run that failed, if it ran out of time
 */
export async function peersResult(
  host: GpuResult['host'],
  run: () => Promise<{ readonly results: readonly unknown[]; readonly leftOut?: readonly LeftOut[] | undefined }>,
  late: () => string | undefined = () => undefined,
): Promise<GpuResult> {
  const started = performance.now();
  const told = (rows: GpuResult['rows'], why: string): GpuResult => ({
    part: 'peers',
    title: 'Other runtimes on the same weights (q4)',
    host,
    seconds: (performance.now() - started) / 1000,
    rows,
    ...(why !== '' && { left_out: why }),
  });
  try {
    const { results, leftOut = [] } = await run();
    return told(
      (results as readonly PeerResult[]).map(rowOf),
      leftOut.map(({ runtime, why }) => `${runtime}: ${why}`).join('; '),
    );
  } catch (error) {
    const why = late();
    if (why !== undefined) return told([], why);
    if (!(error instanceof SplitkvError) || error.code === 'aborted') throw error;
    return told([], error.message);
  }
}
