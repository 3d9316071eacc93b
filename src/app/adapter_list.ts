/** What an adapter offers, as plain data. */
export interface AdapterEntry {
  readonly name: string;
  readonly vendor: string;
  readonly architecture: string;
  readonly device: string;
  readonly description: string;
  readonly software: boolean;
  /** The name to give --adapter (Node), or the power preference that leads here (browsers). */
  readonly request: string;
  /** The request whose adapter this one is again; two preferences may lead to one GPU. */
  readonly same_as?: string;
  readonly features: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
}

/** Describes an adapter, in Node or in a page. */
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
    software: adapter.info.isFallbackAdapter ?? false,
    request,
    features: [...adapter.features].sort(),
    limits,
  };
}
