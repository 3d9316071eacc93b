import { throwIfAborted } from '../../base/errors.js';
import { type AdapterRequest, type Device, openDevice } from '../../gpu/index.js';
import type { AdapterMeasure, LayerMeasure, MachineMeasure } from '../../placement/index.js';
import { measureGroup } from './measure_group.js';
import { measureHead } from './measure_head.js';
import { measureLayers } from './measure_layers.js';
import { measureOverheads } from './overheads.js';
import type { ProbeSubject } from './probe.js';
import { type LayerKind, layerKinds } from './probe_layers.js';
import { defaultStore, measured, type MeasureStore } from './store.js';

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
  const { subject, adapters, virtual, fresh = false, signal, onProgress } = request;
  const store = request.store ?? (await defaultStore());
  const used = virtual ? adapters.map(() => adapters[0]!) : adapters;
  // An adapter is asked for in different words, and different words may lead to one.
  const asked = new Map<string, string>();
  const measures = new Map<string, Omit<AdapterMeasure, 'budgetBytes'>>();
  for (const adapter of used) {
    const words = JSON.stringify(adapter);
    if (asked.has(words)) continue;
    await withDevices([adapter], false, signal, async ([device]) => {
      const identity = JSON.stringify(device!.adapter);
      asked.set(words, identity);
      if (measures.has(identity)) return;
      const measure = await measured(store, 'adapter', [identity, subject], fresh, () => {
        onProgress?.(`measuring ${device!.name}`);
        return measureAdapter(device!, subject);
      });
      measures.set(identity, measure);
    });
  }
  const identities = used.map((adapter) => asked.get(JSON.stringify(adapter))!);
  const group = await measured(store, 'group', [identities, virtual, subject], fresh, () => {
    onProgress?.(`measuring ${used.length} ranks side by side`);
    return withDevices(used, virtual, signal, (devices) => measureGroup(devices, subject));
  });
  return { ...group, ranks: identities.map((identity) => measures.get(identity)!) };
}

/** One adapter by itself. */
export async function measureAdapter(
  device: Device,
  subject: ProbeSubject,
): Promise<Omit<AdapterMeasure, 'budgetBytes'>> {
  const overheads = await measureOverheads(device);
  const head = await measureHead(device, subject);
  const layers: Partial<Record<LayerKind, LayerMeasure>> = {};
  for (const kind of layerKinds(subject.config)) layers[kind] = await measureLayers(device, subject, kind, overheads);
  return { name: device.name, ...layers, head, ...overheads };
}

/** Opens devices, or one for all; whatever happens they are closed. */
async function withDevices<T>(
  adapters: readonly AdapterRequest[],
  shared: boolean,
  signal: AbortSignal | undefined,
  body: (devices: readonly Device[]) => Promise<T>,
): Promise<T> {
  const devices: Device[] = [];
  try {
    for (const [i, adapter] of adapters.entries()) {
      throwIfAborted(signal, 'measuring');
      devices.push(shared && i > 0 ? devices[0]! : await openDevice(adapter));
    }
    return await body(devices);
  } finally {
    for (const device of devices) device.dispose();
  }
}
