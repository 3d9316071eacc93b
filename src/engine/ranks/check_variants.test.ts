import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { type Device, type FastPath, openDevice } from '../../gpu/index.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { STATE_SPACE } from '../../model/testing/small_configs.js';
import { openRunner } from '../testing/open_runner.js';
import { randomFiles } from '../testing/random_source.js';
import { wrongVariants } from './check_variants.js';

afterEach(() => void vi.unstubAllEnvs());

const adapterName = (await testAdapters()).at(-1)!.name;
const request = { adapterName, variants: 'hardware' } as const;

/** A driver that makes nothing of some kernels' variants for GPUs, or of the form that they have with precision 'fast'. */
function breakKernels(device: Device, kernels: readonly string[], form: 'hardware' | 'fast' = 'hardware'): Device {
  const create = device.gpu.createShaderModule.bind(device.gpu);
  const traitsOf = device.traitsOf.bind(device);
  // A kernel is compiled as soon as it is planned, or before any is.
  let isPlain = false;
  device.traitsOf = (name) => {
    const traits = traitsOf(name);
    isPlain = form === 'fast' ? traits.fast === undefined : traits.software;
    return traits;
  };
  device.gpu.createShaderModule = ({ label, code }) => {
    const isBroken = kernels.includes(label!) && !isPlain;
    const broken = code.replace(/(@compute[\s\S]*?fn main\([\s\S]*?\)\s*\{)/, '$1 if (true) { return; }');
    if (isBroken) expect(broken).not.toBe(code);
    return create({ label: label!, code: isBroken ? broken : code });
  };
  return device;
}

const deltaHeads = {
  linear_num_key_heads: 2,
  linear_num_value_heads: 4,
  linear_key_head_dim: 16,
  linear_value_head_dim: 16,
};
const BROKEN: [string, Record<string, unknown>, kernels: string[]][] = [
  ['llama as it is', {}, []],
  ['llama, a merge broken', {}, ['linear_merge']],
  // The second one runs only where the first doesn't.
  ['llama, attention broken', {}, ['attention_append', 'attention_split']],
  [
    'qwen3.5, linear attention broken',
    { model_type: 'qwen3_5_text', num_hidden_layers: 4, head_dim: 32, ...deltaHeads },
    ['delta_step', 'delta_rule'],
  ],
  [
    'granite 4, state spaces broken',
    { ...STATE_SPACE, layer_types: ['mamba', 'mamba', 'mamba', 'attention'] },
    ['delta_rule', 'gated_squares'],
  ],
  ['deepseek, the router broken', { model_type: 'deepseek_v3' }, ['moe_route']],
  [
    'deepseek, experts broken',
    { model_type: 'deepseek_v2' },
    ['expert_linear_route', 'expert_linear', 'expert_linear_combine'],
  ],
  ['sampling broken: the list of tokens', { vocab_size: 9100 }, ['list_bins']],
  ['sampling broken: the sums of weights', { vocab_size: 9100 }, ['bin_weights']],
  ['sampling broken: candidates', { vocab_size: 9100 }, ['merge_candidates']],
  ['sampling broken: controls', {}, ['adjust_logits']],
];
test.each([BROKEN[0]!, ...drawn(BROKEN.slice(1), 1, 'broken variants')])(
  'finds the variants that compute otherwise: %s',
  { timeout: 120_000 },
  async (_what, config, broken) => {
    const { model } = randomFiles({ seed: 1, config });
    const device = await openDevice(request);
    if (broken.length > 0) breakKernels(device, broken);
    const subject = { config: model.config, type: 'f32', kvType: 'f32', contextLength: 300, batched: false } as const;
    const replaced = Object.fromEntries(broken.map((kernel) => [kernel, 'plain']));
    expect(await wrongVariants(device, subject)).toEqual(replaced);
    device.dispose();
  },
);

const FAST: [string, Record<string, unknown>, FastPath, broken: string | undefined, 'hardware' | 'fast'][] = [
  ['llama by bytes', {}, 'dot4', undefined, 'fast'],
  ['deepseek by f16', { model_type: 'deepseek_v3' }, 'f16', undefined, 'fast'],
  ['deepseek by bytes', { model_type: 'deepseek_v3' }, 'dot4', undefined, 'fast'],
  ['its fast form broken', {}, 'dot4', 'linear_tiled', 'fast'],
  ['all its forms broken', {}, 'f16', 'linear_tiled', 'hardware'],
  ["the experts' fast form broken", { model_type: 'deepseek_v3' }, 'f16', 'expert_linear_tiled', 'fast'],
];
test.each(drawn(FAST, 1, 'wrong fast variants'))(
  "with precision 'fast' the exact variant is tried next: %s",
  { timeout: 120_000 },
  async (...row) => {
    const [, config, path, broken, form] = row;
    const { model } = randomFiles({ seed: 1, config });
    const device = await openDevice({ ...request, fast: [path] });
    expect(device.traits.fast!.paths).toEqual([path]);
    const taken = new Set<FastPath>();
    const note = device.note.bind(device);
    device.note = (kernel, traits, fast) => {
      if (kernel === 'linear_tiled' && fast) taken.add(fast);
      note(kernel, traits, fast);
    };
    if (broken !== undefined) breakKernels(device, [broken], form);
    const subject = { config: model.config, type: 'q8', kvType: 'f32', contextLength: 300, batched: false } as const;
    const expected = broken === undefined ? {} : { [broken]: form === 'fast' ? 'exact' : 'plain' };
    expect(await wrongVariants(device, subject)).toEqual(expected);
    expect([...taken]).toEqual([path]);
    device.dispose();
  },
);

test(
  'at load the plain one takes its place, with a warning, and the model is right',
  { timeout: 120_000 },
  async () => {
    vi.stubEnv('SPLITKV_CACHE_DIR', mkdtempSync(join(tmpdir(), 'splitkv-variants-')));
    const warnings: string[] = [];
    const shared = { adapter: adapterName, model: { seed: 1 }, contextLength: 288 };
    const logitsOf = async ({ runner, group }: Awaited<ReturnType<typeof openRunner>>): Promise<Float32Array[]> => {
      const rows: Float32Array[] = [];
      await runner.logits([1, 2, 3, 4, 5], true, (_position, row) => rows.push(row.slice()));
      group.dispose();
      return rows;
    };
    const opened = await openRunner({
      ...shared,
      variants: 'hardware',
      onWarning: (message) => warnings.push(message),
      open: async (asked) => {
        const device = breakKernels(await openDevice(asked), ['rms_norm']);
        // For all that it knows this is a GPU.
        Object.defineProperty(device, 'adapter', { value: { ...device.adapter, software: false } });
        return device;
      },
    });
    const { variants } = opened.group.ranks[0]!.facts;
    expect(variants).toMatchObject({ rms_norm: 'software', linear: 'hardware', attention_append: 'hardware' });
    expect(warnings).toEqual([expect.stringMatching(/computes wrongly with rms_norm: the plain variant runs instead/)]);
    const got = await logitsOf(opened);
    const expected = await logitsOf(await openRunner({ ...shared, variants: 'software' }));
    for (const [at, row] of expected.entries()) {
      for (const [id, value] of row.entries()) expect(Math.abs(got[at]![id]! - value)).toBeLessThan(1e-3);
    }
  },
);
