import { afterAll, describe, expect } from 'vitest';
import { openDevice } from '../adapters.js';
import { drawn, isTurn } from './draw.js';
import type { Device, DeviceTraits, Variants } from '../device.js';

/** Adapters that tests run on, where present: both software ones by name, otherwise whatever the machine offers first. */
const SOFTWARE = ['SwiftShader', 'llvmpipe'] as const;

export interface TestAdapter {
  readonly name: string;
  readonly software: boolean;
  /** `variants` of kernels: default those for what it is. */
  readonly open: (variants?: Variants) => Promise<Device>;
}

async function findAdapters(): Promise<TestAdapter[]> {
  const found: TestAdapter[] = [];
  for (const adapterName of SOFTWARE) {
    try {
      const device = await openDevice({ adapterName });
      device.dispose();
      found.push({
        name: adapterName,
        software: true,
        open: (variants) => openDevice({ adapterName, ...(variants && { variants }) }),
      });
    } catch {
      // Not installed here.
    }
  }
  try {
    const device = await openDevice();
    const { software } = device.traits;
    if (!software || found.length === 0)
      found.unshift({
        name: device.name,
        software,
        open: (variants) => openDevice({ ...(variants && { variants }) }),
      });
    device.dispose();
  } catch (error) {
    if (found.length === 0) throw error;
  }
  return found;
}

let adapters: Promise<TestAdapter[]> | undefined;

/** Every adapter present on this machine; at least one, otherwise the run fails and says so. */
export const testAdapters = (): Promise<TestAdapter[]> => (adapters ??= findAdapters());

/** Runs in which a software adapter has a turn beside the quickest one: one in so many. */
const EVERY = 8;

/**
 * The adapters of this run: a GPU, the quickest software adapter (the last one), and the other in every eighth run, for it compiles for
 * seconds. `what` makes tests' turns differ.
 */
export async function adaptersInTurn(what: string): Promise<TestAdapter[]> {
  const adapters = await testAdapters();
  return adapters.filter(
    (adapter) => !adapter.software || adapter === adapters.at(-1) || isTurn(EVERY, `${what} ${adapter.name}`),
  );
}

/**
 * Runs a suite on the adapters of this run; `device()` is open inside tests and hooks, and disposed after them. `isQuickest`: where long
 * lists of cases run; on the others a few of them do.
 */
export async function describeOnAdapters(
  title: string,
  suite: (device: () => Device, isQuickest: boolean) => void,
): Promise<void> {
  const quickest = (await testAdapters()).at(-1);
  for (const adapter of await adaptersInTurn(title)) {
    const device = await adapter.open();
    describe(`${title} on ${adapter.name}`, () => {
      suite(() => device, adapter === quickest);
      afterAll(() => device.dispose());
    });
  }
}

/**
 * What a device decides for itself, or what a GPU would decide where that differs: each test draws one of the two, as compiling takes
 * software adapters seconds.
 */
export function decisions({ name, traits }: Device): DeviceTraits[] {
  const all = traits.software ? [traits, { ...traits, software: false }] : [traits];
  return drawn(all, 1, `${name} ${expect.getState().currentTestName}`);
}
