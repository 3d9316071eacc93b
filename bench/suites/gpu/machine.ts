/**
 * Room: parts of the suite `gpu` (../gpu.ts): what the machine takes for steps, copies and waits (here), its kernels
 * (kernels.ts), and the two forms of MLA (mla.ts). Read kernels.ts next.
 */

import { median } from '../../../src/base/stats.js';
import { measureHead } from '../../../src/engine/measure/measure_machine.js';
import { measureOverheads } from '../../../src/engine/measure/overheads.js';
import { Probe } from '../../../src/engine/measure/probe.js';
import { chooseLayers, layerKinds } from '../../../src/engine/measure/probe_layers.js';
import { load, type LoadOptions } from '../../../src/index.js';
import { openDevice } from '../../../src/gpu/index.js';
import { readModelConfig } from '../../../src/model/families/registry.js';
import { modelSizes } from '../../../src/model/model_sizes.js';
import { PUBLISHED } from '../../../src/model/testing/published_configs.js';
import { randomPrompt } from '../../prompt.js';
import type { GpuBench, GpuPart } from '../gpu.js';

const ms = (seconds: number): number => seconds * 1e3;

/** What a token pays besides arithmetic. */
const overheads: GpuPart = {
  name: 'overheads',
  title: 'Chains of dependent dispatches of next to nothing, submits, waits and reading back',
  seconds: 20,
  async run({ device, row, isLate }) {
    const { dispatchSeconds, submitSeconds, waitSeconds } = await measureOverheads(device);
    row({ what: 'a dependent dispatch', us: dispatchSeconds * 1e6 });
    row({ what: 'a submit', us: submitSeconds * 1e6 });
    row({ what: 'a wait for all work', us: waitSeconds * 1e6 });
    if (isLate()) return;
    const { gpu } = device;
    const from = device.createBuffer('ids', 16);
    const staging = Array.from({ length: 8 }, (_, i) => device.createBuffer(`read ${i}`, 16, 'staging'));
    const readBack = async (count: number): Promise<number> => {
      const started = performance.now();
      const maps = staging.slice(0, count).map((to) => {
        const encoder = gpu.createCommandEncoder();
        encoder.copyBufferToBuffer(from.gpu, 0, to.gpu, 0, 16);
        gpu.queue.submit([encoder.finish()]);
        return to.gpu.mapAsync(GPUMapMode.READ);
      });
      await device.wait(Promise.all(maps));
      for (const to of staging.slice(0, count)) to.gpu.unmap();
      return (performance.now() - started) * 1e3;
    };
    for (const count of [1, 8]) {
      await readBack(count);
      const samples: number[] = [];
      while (samples.length < 30 && !(samples.length > 4 && isLate())) samples.push(await readBack(count));
      row({ what: count === 1 ? 'submit, copy, mapAsync' : `${count} of them at once, the last`, us: median(samples) });
    }
  },
};

const rates: GpuPart = {
  name: 'rates',
  title: 'What the adapter copies and multiplies',
  seconds: 20,
  async run({ rates: measure, row }) {
    const { copy_gbps: copy, fma_gflops: fma } = await measure();
    row({ what: 'copies, read and written', 'GB/s': copy });
    row({ what: 'f32 multiply-adds', 'GFLOP/s': fma });
  },
};

/** Ways to run a model that must not change a bit. */
const WAYS: readonly (readonly [string, LoadOptions])[] = [
  ['one rank', {}],
  ['prompts in steps of 37', { prefillChunk: 37 }],
  ["kernels' usual plans", { tune: false }],
  ['tp on 2 virtual ranks', { ranks: 2, virtualRanks: true, plan: 'tp' }],
  ['sp on 2 virtual ranks', { ranks: 2, virtualRanks: true, plan: 'sp' }],
  ['pp on 2 virtual ranks', { ranks: 2, virtualRanks: true, plan: 'pp' }],
];
const PROMPT = 70;

const bits: GpuPart = {
  name: 'bits',
  title: 'Digests of logits: equal bits whatever the plan, the chunk and the tuning',
  seconds: 60,
  async run({ request, hooks, row, isLate, quick }) {
    const { signal, onWarning } = hooks;
    let different = 0;
    for (const where of request.models) {
      for (const weights of quick ? (['q4'] as const) : (['f16', 'q4'] as const)) {
        let first: string | undefined;
        for (const [way, options] of WAYS) {
          if (isLate()) return;
          hooks.onProgress(`${way}, ${weights}`);
          const model = await load(where, {
            ...request.load,
            weights,
            contextLength: 256,
            ...options,
            signal,
            onWarning,
          });
          try {
            const { rows } = await model.logits(randomPrompt(PROMPT, model.info.vocabSize), { all: true, signal });
            const bytes = new Uint8Array(await new Blob(rows.map((each) => each.slice())).arrayBuffer());
            const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
            const sha256 = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
            first ??= sha256;
            if (sha256 !== first) different++;
            row({ model: model.info.name, weights, way, same: sha256 === first ? 'yes' : 'NO', sha256 });
          } finally {
            await model.dispose();
          }
        }
      }
    }
    if (different > 0) throw new Error(`${different} ways to run a model gave other bits than one rank did`);
  },
};

const MODELS = ['qwen2.5-0.5b-instruct', 'llama-3.2-1b-instruct', 'llama-3.2-3b-instruct', 'deepseek-v2-lite-chat'];
const LAYER_BYTES = 64 * 2 ** 20;
const MOST_BYTES = 512 * 2 ** 20;

const models: GpuPart = {
  name: 'models',
  title: 'Models in q4 with an f16 cache, random weights: times of layers and of the head, added up',
  seconds: 120,
  async run(bench) {
    const { quick, isLate } = bench;
    for (const name of quick ? MODELS.slice(0, 1) : MODELS) {
      if (isLate()) return;
      await modelTimes(bench, name);
    }
  },
};

async function modelTimes(
  { device: { adapter }, request, hooks, quick, row, isLate }: GpuBench,
  name: string,
): Promise<void> {
  const config = await readModelConfig(PUBLISHED[name]!.config);
  const lengths = quick ? [32, 300] : [128, 4096];
  const subject = { config, type: 'q4', kvType: 'f16', contextLength: Math.max(...lengths), batched: false } as const;
  const sizes = modelSizes(config, subject.type, subject.kvType);
  // A device of its own: everything on it is freed with it.
  const { variants } = adapter;
  const device = await openDevice({ ...request.adapter, variants });
  try {
    hooks.onProgress(`${name}: the head`);
    const { secondsPerByte } = await measureHead(device, subject);
    const head = secondsPerByte * sizes.headRow * config.vocabSize;
    const token = lengths.map(() => head);
    const rows = quick ? 64 : 512;
    let prompt = 0;
    for (const kind of layerKinds(config)) {
      if (isLate()) return;
      hooks.onProgress(`${name}: ${kind} layers`);
      const count = config.layers.filter(({ mlp }) => (mlp.kind === 'experts') === (kind === 'expert')).length;
      const chosen = chooseLayers(config, sizes, kind, 'whole', quick ? 1 : LAYER_BYTES, MOST_BYTES);
      const probe = await Probe.open(device, subject, chosen);
      await probe.check();
      for (const [at, length] of lengths.entries()) {
        token[at]! += count * (await probe.layerSeconds(probe.generated(1, length), 0));
      }
      const most = Math.min(rows, probe.promptRows);
      prompt += count * (await probe.layerSeconds(probe.prompt(0, most), 0)) * (rows / most);
    }
    for (const [at, length] of lengths.entries()) {
      row({
        model: name,
        context: length,
        'tokens/s': 1 / token[at]!,
        'ms a token': ms(token[at]!),
        'of it head': `${Math.round((100 * head) / token[at]!)}%`,
        'times the shortest': token[at]! / token[0]!,
        [`prompt of ${rows}, tokens/s`]: rows / prompt,
      });
    }
  } finally {
    device.dispose();
  }
}

export const MACHINE_PARTS: { readonly before: readonly GpuPart[]; readonly after: readonly GpuPart[] } = {
  before: [overheads, rates],
  after: [models, bits],
};
