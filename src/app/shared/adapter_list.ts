import { type AdapterDescription, noWebGpu, saysCpu } from '../../gpu/index.js';

/** What an adapter offers, as plain data. */
export interface AdapterEntry extends Omit<AdapterDescription, 'variants' | 'fast'> {
  readonly name: string;
  /** The name to give --adapter (Node), or the power preference that leads here (browsers). */
  readonly request: string;
  /** The request whose adapter this one is again; two preferences may lead to one GPU. */
  readonly same_as?: string;
  /** Taken where none is asked for. */
  readonly default?: boolean;
  readonly features: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
}

export function describeAdapter(adapter: GPUAdapter, request: string): AdapterEntry {
  const { vendor, architecture, device, description } = adapter.info;
  const limits: Record<string, number> = {};
  for (const key in adapter.limits) {
    const value = (adapter.limits as unknown as Record<string, unknown>)[key];
    if (typeof value === 'number') limits[key] = value;
  }
  return {
    name: description || device || `${vendor} ${architecture}`.trim() || 'unknown adapter',
    vendor,
    architecture,
    device,
    description,
    software: saysCpu(adapter),
    request,
    features: [...adapter.features].sort(),
    limits,
  };
}

/**
 * The adapters that a browser gives for its two power preferences; the second says so where it leads to the GPU of the first.
 * @throws SplitkvError `no_webgpu` where the browser has no WebGPU
 */
export async function listBrowserAdapters(): Promise<AdapterEntry[]> {
  if (!navigator.gpu) throw noWebGpu();
  const entries: AdapterEntry[] = [];
  for (const powerPreference of ['high-performance', 'low-power'] as const) {
    const adapter = await navigator.gpu.requestAdapter({ powerPreference });
    if (adapter) entries.push(describeAdapter(adapter, powerPreference));
  }
  const [first, ...others] = markSame(entries);
  return first ? [{ ...first, default: true }, ...others] : [];
}

/** Tells which entries are the GPU of an earlier one: browsers name no device, so it is all they say of it that is compared. */
export function markSame(entries: readonly AdapterEntry[]): AdapterEntry[] {
  return entries.map((entry, index) => {
    const same = entries.slice(0, index).find((other) => identity(other) === identity(entry));
    return same ? { ...entry, same_as: same.request } : entry;
  });
}

/** Of adapters those that are no other one again. */
export const differentGpus = (entries: readonly AdapterEntry[]): AdapterEntry[] =>
  entries.filter(({ same_as: same }) => same === undefined);

const identity = ({ request: _, ...entry }: AdapterEntry): string => JSON.stringify(entry);
