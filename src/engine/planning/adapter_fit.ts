import { SplitkvError } from '../../base/errors.js';
import { type Device, openDevice } from '../../gpu/index.js';
import type { Plan } from '../../placement/index.js';
import { type PlanSubject, runnerOf } from './plan_subject.js';
import type { AdapterRequest } from './rank_adapters.js';
import { rankOnPaper } from '../ranks/rank_memory.js';

/** Memory is asked for in pieces: no adapter has one buffer for all of it. */
const PIECE_BYTES = 256 * 2 ** 20;

/**
 * Why adapters can't hold the ranks of a plan, with what to do about it; undefined where they can: every buffer keeps to the
 * adapter's limits, and as much memory as loading would take can be had right now, on all ranks at once. It is given back.
 * @param virtual all ranks are on one device
 * @throws SplitkvError as `openDevice`
 */
export async function adapterMisfit(
  plan: Plan,
  subject: PlanSubject,
  adapters: readonly AdapterRequest[],
  virtual: boolean,
): Promise<string | undefined> {
  const devices: Device[] = [];
  try {
    for (let rank = 0; rank < plan.worldSize; rank++) {
      const device = (virtual ? devices[0] : undefined) ?? (await openDevice({ ...adapters[rank]!, instance: rank }));
      devices.push(device);
      const runner = { ...runnerOf(subject, plan), memory: [] };
      const { totalBytes } = await rankOnPaper(plan, rank, subject, runner, device);
      const besides = rank === 0 ? (subject.draftBytes ?? 0) : 0;
      await device.checked(`the model's ${rankName(plan, rank)}`, () => take(device, totalBytes + besides));
    }
    return undefined;
  } catch (error) {
    if (error instanceof SplitkvError && error.code === 'limit') return error.message;
    throw error;
  } finally {
    for (const device of devices) device.dispose();
  }
}

const rankName = ({ worldSize }: Plan, rank: number): string => (worldSize === 1 ? 'memory' : `rank ${rank}`);

function take(device: Device, bytes: number): void {
  const piece = Math.min(PIECE_BYTES, device.traits.limits.maxStorageBufferBindingSize);
  for (let left = bytes; left > 0; left -= piece) device.createBuffer('trial', Math.min(left, piece));
}
