import { type AdapterEntry, describeAdapter, differentGpus } from '../../app/shared/adapter_list.js';
import { noWebGpuError } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import { nodeAdapterNames, nodeGpu, requestNodeAdapter } from '../../gpu/node.js';
import { type AdapterBasics, type AdaptersMeasure, MATVEC_SIZE, measureAdapters } from '../../index.js';
import { type Command, commonOptions, say, type Terminal } from '../command.js';
import { plain, type Style } from '../terminal/style.js';

export const command: Command = {
  summary: 'The WebGPU adapters of this machine: features, limits, and how fast they are.',
  usage: 'adapters [options]',
  options: {
    host: { value: 'HOST', help: 'node (default: WebGPU by Dawn) or chrome' },
    quick: { help: 'only list them, measure nothing' },
    ...commonOptions,
  },
  async run(options, terminal) {
    const host = options.oneOf('host', ['node', 'chrome']) ?? 'node';
    const { signal, progress } = terminal;
    const isQuick = options.has('quick');
    const listing =
      host === 'chrome'
        ? await (await import('../hosts/chrome_host.js')).chromeAdapters(signal, progress, !isQuick)
        : await nodeListing(isQuick, terminal);
    if (listing.adapters.length === 0) {
      throw noWebGpuError(`${host} offers no WebGPU adapter; update the GPU driver or install a software one`);
    }
    const { out: style } = terminal.style ?? { out: plain };
    const texts = listing.adapters.map((adapter) => {
      const basics = basicsOf(listing, adapter);
      return adapterText(adapter, style, basics && { speed: speed(basics) });
    });
    await say(options, terminal, { host, ...documentOf(listing) }, texts.join('') + describeExchanges(listing));
    return 0;
  },
};

interface Listing {
  readonly adapters: readonly AdapterEntry[];
  /** Of the adapters that aren't another one again, in order. */
  readonly measure: AdaptersMeasure | undefined;
}

const basicsOf = (listing: Listing, adapter: AdapterEntry): AdapterBasics | undefined =>
  listing.measure?.adapters[differentGpus(listing.adapters).indexOf(adapter)];

async function nodeListing(quick: boolean, { signal, progress }: Terminal): Promise<Listing> {
  const adapters = await nodeAdapters();
  const requests = adapters.map(({ request }) => ({ adapterName: request }));
  return { adapters, measure: quick ? undefined : await measureAdapters(requests, { signal, onProgress: progress }) };
}

/** Every adapter that Dawn finds. */
export async function nodeAdapters(): Promise<AdapterEntry[]> {
  const entries: AdapterEntry[] = [];
  for (const name of await nodeAdapterNames()) {
    const adapter = await (await nodeGpu(name)).requestAdapter();
    if (adapter) entries.push({ ...describeAdapter(adapter, name), name });
  }
  const taken = await requestNodeAdapter({});
  const first = taken && describeAdapter(taken, '');
  const at = entries.findIndex(
    ({ device, vendor, description }) =>
      device === first?.device && vendor === first.vendor && description === first.description,
  );
  return entries.map((entry, index) => (index === at ? { ...entry, default: true } : entry));
}

/** Names are stable: other tools read them. */
function documentOf(listing: Listing): object {
  const names = differentGpus(listing.adapters).map(({ request }) => request);
  const adapters = listing.adapters.map((adapter) => {
    const basics = basicsOf(listing, adapter);
    if (!basics) return adapter;
    const { copyBytesPerSecond, matvecSeconds, dispatchSeconds, submitSeconds, waitSeconds } = basics;
    return {
      ...adapter,
      measured: {
        copy_bytes_per_second: copyBytesPerSecond,
        matvec_flops_per_second: MATVEC_FLOPS / matvecSeconds,
        matvec_bytes_per_second: MATVEC_BYTES / matvecSeconds,
        us_per_dispatch: dispatchSeconds * 1e6,
        us_per_submit: submitSeconds * 1e6,
        us_per_wait: waitSeconds * 1e6,
      },
    };
  });
  const exchanges = listing.measure?.exchanges.map(({ a, b, latencySeconds, bytesPerSecond }) => ({
    between: [names[a], names[b]],
    us: latencySeconds * 1e6,
    bytes_per_second: bytesPerSecond,
  }));
  return { adapters, ...(exchanges && { exchanges }) };
}

const MATVEC_FLOPS = 2 * MATVEC_SIZE ** 2;
const MATVEC_BYTES = 2 * MATVEC_SIZE ** 2;

/** @param more lines of a name and what is said of it */
export function adapterText(entry: AdapterEntry, style: Style, more: Readonly<Record<string, string>> = {}): string {
  const { name, request, vendor, architecture, software, same_as: sameAs, description, features, limits } = entry;
  const head =
    style('bold', name) + (entry.default === true ? `  ${style('green', 'taken unless another is asked for')}` : '');
  if (sameAs !== undefined) return `${head}\n  the same GPU as ${sameAs}: it is no second rank\n`;
  const has = (feature: string): string => (features.includes(feature) ? 'yes' : 'no');
  const limit = (key: string): number => limits[key] ?? 0;
  return [
    head,
    `  kind        ${`${vendor} ${architecture}`.trim() || 'unknown vendor'}, ${software ? 'runs on the CPU' : 'a GPU'}`,
    `  driver      ${description || 'not told'}`,
    `  features    f16 ${has('shader-f16')}, subgroups ${has('subgroups')}, timestamps ${has('timestamp-query')}`,
    `  kernels     variants ${software ? 'software' : 'hardware'}, KV cache ${software ? 'f32' : 'f16'} by default`,
    `  limits      buffer ${formatBytes(limit('maxBufferSize'))}, binding ${formatBytes(limit('maxStorageBufferBindingSize'))}, ` +
      `workgroup ${limit('maxComputeInvocationsPerWorkgroup')} invocations and ${formatBytes(limit('maxComputeWorkgroupStorageSize'))}`,
    ...Object.entries(more).map(([key, text]) => `  ${key.padEnd(12)}${text}`),
    ...(request === name ? [] : [`  asked for as  ${request}`]),
    '',
  ].join('\n');
}

function speed({ copyBytesPerSecond, matvecSeconds, dispatchSeconds, submitSeconds }: AdapterBasics): string {
  const matvec = `${billions(MATVEC_FLOPS / matvecSeconds)} GFLOP/s (${billions(MATVEC_BYTES / matvecSeconds)} GB/s)`;
  return (
    `copy ${billions(copyBytesPerSecond)} GB/s, f16 matrix of ${MATVEC_SIZE} x ${MATVEC_SIZE} times a vector ${matvec}, ` +
    `${micros(dispatchSeconds)} a dispatch, ${micros(submitSeconds)} a submit`
  );
}

function describeExchanges(listing: Listing): string {
  const names = differentGpus(listing.adapters).map(({ name }) => name);
  const lines = (listing.measure?.exchanges ?? []).map(({ a, b, latencySeconds, bytesPerSecond }) => {
    const where = a === b ? `two devices on ${names[a]}` : `${names[a]} and ${names[b]}`;
    return `  ${where}: ${micros(latencySeconds)}, ${billions(bytesPerSecond)} GB/s each way\n`;
  });
  return lines.length > 0 ? `exchanges between ranks\n${lines.join('')}` : '';
}

const micros = (seconds: number): string => `${Number((seconds * 1e6).toPrecision(2))} us`;
const billions = (perSecond: number): string => `${Number((perSecond / 1e9).toPrecision(2))}`;
