/**
 * Room: what the planner asks of the machine, measured: layers, the head, dispatches and exchanges, on random weights;
 * kept for the next time (store.ts). docs/planner.md lists it. Read measure_layers.ts next.
 */

import { throwIfAborted } from '../../base/errors.js';
import { type AdapterRequest, type Device, openDevice } from '../../gpu/index.js';
import type { AdapterMeasure, LayerMeasure, MachineMeasure } from '../../placement/index.js';
import { measureGroup } from './measure_group.js';
import { measureHead } from './measure_head.js';
import { measureLayers } from './measure_layers.js';
import { measureOverheads } from './overheads.js';
import type { ProbeSubject } from './probe.js';
import { type LayerKind, layerKinds } from './probe_layers.js';
import { defaultStore, measured, type MeasureStore } from './stores/store.js';

export interface MachineRequest {
  readonly subject: ProbeSubject;
  /** Adapter of each rank. */
  readonly adapters: readonly AdapterRequest[];
  /** All ranks on one device, the first adapter's. */
  readonly virtual: boolean;
  /** Measure again what was measured before. */
  readonly fresh?: boolean | undefined;
  readonly store?: MeasureStore | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((what: string) => void) | undefined;
}

/**
 * Measures every rank's adapter with the model's own program, the links between them, and what they do to each other; what was
 * measured before is remembered.
 * @throws SplitkvError as `openDevice`; `internal` where an adapter computes nonsense; `aborted`.
 */
export async function measureMachine(request: MachineRequest): Promise<MachineMeasure> {
  const { subject, virtual, fresh = false, signal, onProgress } = request;
  const store = request.store ?? (await defaultStore());
  const adapters = virtual ? request.adapters.map(() => request.adapters[0]!) : request.adapters;
  // Opened when first needed: what is known already needs one device a request, to tell its adapter.
  const devices = new Map<number, Device>();
  const deviceOf = async (rank: number): Promise<Device> => {
    const at = virtual ? 0 : rank;
    let device = devices.get(at);
    if (!device) {
      throwIfAborted(signal, 'measuring');
      devices.set(at, (device = await openDevice({ ...adapters[at]!, instance: at })));
    }
    return device;
  };
  try {
    // Different words may ask for one adapter.
    const identities: string[] = [];
    const measures = new Map<string, AdapterMeasure>();
    for (const [rank, adapter] of adapters.entries()) {
      const same = adapters.findIndex((other) => JSON.stringify(other) === JSON.stringify(adapter));
      const device = await deviceOf(same);
      const identity = JSON.stringify(device.adapter);
      identities[rank] = identity;
      if (measures.has(identity)) continue;
      const measure = await measured(store, 'adapter', [identity, subject], fresh, () => {
        onProgress?.(`measuring ${device.name}`);
        return measureAdapter(device, subject);
      });
      measures.set(identity, measure);
    }
    const group = await measured(store, 'group', [identities, virtual, subject], fresh, async () => {
      onProgress?.(`measuring ${adapters.length} ranks side by side`);
      const all: Device[] = [];
      for (const rank of adapters.keys()) all.push(await deviceOf(rank));
      return measureGroup(all, subject);
    });
    return { ...group, ranks: identities.map((identity) => measures.get(identity)!) };
  } finally {
    for (const device of devices.values()) device.dispose();
  }
}

/** One adapter by itself. */
async function measureAdapter(device: Device, subject: ProbeSubject): Promise<AdapterMeasure> {
  const overheads = await measureOverheads(device);
  const head = await measureHead(device, subject);
  const layers: Partial<Record<LayerKind, LayerMeasure>> = {};
  for (const kind of layerKinds(subject.config)) layers[kind] = await measureLayers(device, subject, kind, overheads);
  return { name: device.name, ...layers, head, ...overheads };
}
