/** Adapters that run on the CPU, by their names: what drivers and browsers call them. */
const CPU_NAMES =
  /swiftshader|llvmpipe|lavapipe|softpipe|basic render|\bwarp\b|software (adapter|rasteri[sz]er|renderer)/i;

/** As older browsers tell it. */
interface OlderAdapter {
  readonly isFallbackAdapter?: boolean;
}

/** Whether an adapter runs on the CPU, by its name or as it says itself; undefined where neither tells. */
export function saysCpu(adapter: Pick<GPUAdapter, 'info'>): boolean | undefined {
  const { vendor, architecture, device, description, isFallbackAdapter } = adapter.info as Partial<GPUAdapterInfo>;
  if (CPU_NAMES.test([vendor, architecture, device, description].join(' '))) return true;
  return isFallbackAdapter ?? (adapter as OlderAdapter).isFallbackAdapter;
}
