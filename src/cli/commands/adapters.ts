import { type AdapterEntry, describeAdapter } from '../../app/adapter_list.js';
import { SplitkvError } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import { nodeGpu } from '../../gpu/node.js';
import { type Command, commonOptions, type Terminal } from '../command.js';

export const command: Command = {
  summary: 'The WebGPU adapters of this machine: features and limits.',
  usage: 'adapters [options]',
  options: {
    host: { value: 'HOST', help: 'node (default: WebGPU by Dawn) or chrome' },
    ...commonOptions,
  },
  async run(options, terminal) {
    const host = options.oneOf('host', ['node', 'chrome']) ?? 'node';
    const adapters = host === 'chrome' ? await chromeAdapters(terminal) : await nodeAdapters();
    if (adapters.length === 0) {
      throw new SplitkvError(
        'no_webgpu',
        `${host} offers no WebGPU adapter; update the GPU driver or install a software one`,
      );
    }
    if (options.has('json')) await terminal.write(`${JSON.stringify({ host, adapters })}\n`);
    else for (const adapter of adapters) await terminal.write(describe(adapter));
    return 0;
  },
};

/** Every adapter that Dawn finds. It only lists their names in the error that an impossible name gives. */
async function nodeAdapters(): Promise<AdapterEntry[]> {
  let listing = '';
  try {
    await (await nodeGpu('no adapter has this name')).requestAdapter();
  } catch (error) {
    if (error instanceof SplitkvError) throw error;
    listing = String(error);
  }
  const entries: AdapterEntry[] = [];
  for (const [, backend, name] of listing.matchAll(/backend: '([^']*)', name: '([^']*)'/g)) {
    if (backend === 'null') continue;
    const adapter = await (await nodeGpu(name)).requestAdapter();
    if (adapter) entries.push({ ...describeAdapter(adapter, name!), name: name! });
  }
  return entries;
}

const chromeAdapters = async (terminal: Terminal): Promise<AdapterEntry[]> =>
  (await import('../chrome_host.js')).listChromeAdapters(terminal.signal);

function describe({
  name,
  request,
  vendor,
  architecture,
  software,
  same_as: sameAs,
  features,
  limits,
}: AdapterEntry): string {
  const byName = name === request ? '' : ` (${request})`;
  if (sameAs !== undefined)
    return `${name}${byName}\n  the same GPU as ${sameAs}: ranks on both are devices of one GPU\n`;
  const kind = `${vendor} ${architecture}`.trim() || 'unknown vendor';
  return [
    `${name}${byName}`,
    `  ${kind}, ${software ? 'software (runs on the CPU)' : 'hardware'}`,
    `  f16 arithmetic ${features.includes('shader-f16') ? 'yes' : 'no'}, subgroups ${features.includes('subgroups') ? 'yes' : 'no'}`,
    `  largest buffer ${formatBytes(limits['maxBufferSize'] ?? 0)}, binding ${formatBytes(limits['maxStorageBufferBindingSize'] ?? 0)}`,
    `  workgroup ${limits['maxComputeInvocationsPerWorkgroup']} invocations, ${formatBytes(limits['maxComputeWorkgroupStorageSize'] ?? 0)}\n`,
  ].join('\n');
}
