/** Adapters that run on the CPU, by their names: what drivers and browsers call them. */
const CPU_NAMES =
  /swiftshader|llvmpipe|lavapipe|softpipe|basic render|\bwarp\b|software (adapter|rasteri[sz]er|renderer)/i;

/** Names such an adapter where one is asked for: a page's second one, where its browser has it beside a GPU. */
export const SOFTWARE = 'software';

/** Whether an adapter runs on the CPU, by its name or as it says itself; one that says nothing counts as a GPU. */
export function saysCpu(adapter: Pick<GPUAdapter, 'info'>): boolean {
  const { vendor, architecture, device, description, isFallbackAdapter } = adapter.info as Partial<GPUAdapterInfo>;
  if (CPU_NAMES.test([vendor, architecture, device, description].join(' '))) return true;
  // The latter is how older browsers tell it.
  return isFallbackAdapter ?? (adapter as { readonly isFallbackAdapter?: boolean }).isFallbackAdapter ?? false;
}

/**
 * Told when GPU work of a software adapter is awaited, so that the wait leaves the CPU to the work. Calls come in pairs. Browsers have no
 * pacer: their GPU process doesn't poll.
 */
export interface Pacer {
  begin(): void;
  end(): void;
}

/** Node's is in node.ts. */
export const pacing: { pacer?: Pacer } = {};
