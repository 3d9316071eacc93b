import { afterAll, describe } from 'vitest';
import { openDevice } from '../adapters.js';
import { drawn } from './draw.js';
import type { Device, Variants } from '../device.js';

/** Adapters that tests run on, where present: both software ones by name, else whatever the machine offers first. */
const SOFTWARE = ['SwiftShader', 'llvmpipe'] as const;

export interface TestAdapter {
  readonly name: string;
  /** `variants` of kernels: default those for what it is. */
  readonly open: (variants?: Variants) => Promise<Device>;
}

async function findAdapters(): Promise<TestAdapter[]> {
  const found: TestAdapter[] = [];
  for (const adapterName of SOFTWARE) {
    try {
      const device = await openDevice({ adapterName });
      device.dispose();
      found.push({ name: adapterName, open: (variants) => openDevice({ adapterName, ...(variants && { variants }) }) });
    } catch {
      // Not installed here.
    }
  }
  try {
    const device = await openDevice();
    if (!device.traits.software || found.length === 0)
      found.unshift({ name: device.name, open: (variants) => openDevice({ ...(variants && { variants }) }) });
    device.dispose();
  } catch (error) {
    if (found.length === 0) throw error;
  }
  return found;
}

let adapters: Promise<TestAdapter[]> | undefined;

/** Every adapter present on this machine; at least one, else the run fails and says so. */
export const testAdapters = (): Promise<TestAdapter[]> => (adapters ??= findAdapters());

/**
 * Runs a suite on the quickest adapter present, and on the others where it is drawn (draw.ts); `device()` is open inside tests and
 * hooks, and disposed after them. `isQuickest`: where long lists of cases run; on the others a few of them do.
 */
export async function describeOnAdapters(
  title: string,
  suite: (device: () => Device, isQuickest: boolean) => void,
): Promise<void> {
  const adapters = await testAdapters();
  for (const adapter of adapters) {
    const turns = adapter === adapters.at(-1) ? 1 : 3;
    if (!drawn([...Array(turns).keys()], 1, `${title} ${adapter.name}`).includes(0)) continue;
    const device = await adapter.open();
    describe(`${title} on ${adapter.name}`, () => {
      suite(() => device, adapter === adapters.at(-1));
      afterAll(() => device.dispose());
    });
  }
}
