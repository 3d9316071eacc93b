import { MAX_STEPS_IN_FLIGHT } from '../src/engine/ranks/runner.js';
import type { SlotDriver } from '../src/engine/testing/slot_driver.js';

/** Decode steps of a batch, submitted ahead as `generate` does; the ids of each. */
export async function decodeSteps(runner: SlotDriver, batch: number, steps: number): Promise<Uint32Array[]> {
  const all: Uint32Array[] = [];
  const ahead: Promise<Uint32Array>[] = [];
  for (let step = 0; step < steps; step++) {
    ahead.push(runner.step(batch));
    if (ahead.length === MAX_STEPS_IN_FLIGHT) all.push(await ahead.shift()!);
  }
  for (const ids of ahead) all.push(await ids);
  return all;
}
