import { throwIfAborted } from '../../src/base/errors.js';
import { openModel } from '../../src/engine/faces/load.js';
import { LoadedModel } from '../../src/engine/faces/model.js';
import type { HandedKv, PrefillWorker } from '../../src/engine/contracts/prefill_worker.js';
import { handedKv } from './onnx/prompt_filler.js';
import { SlotDriver } from '../../src/engine/testing/slot_driver.js';
import type { LoadOptions, Model } from '../../src/index.js';
import type { Answering, PeerModel } from './peer_model.js';

/** This runtime; a context that is given is taken over as a prefill worker's is. */
export async function openOurs(where: string | readonly File[], options: LoadOptions): Promise<PeerModel> {
  const opened = await openModel(where, options, () => ({ slots: 1, batches: 1 }));
  // Every run computes its prompt.
  const how = { stepsInFlight: 'auto', prefixCaching: false } as const;
  const model = new LoadedModel(opened, how);
  const runner = new SlotDriver(opened.group.runner);
  const answer = async (by: Model, prompt: readonly number[], maxTokens: number) => {
    const { signal } = options;
    const { tokens, stats } = await by.generate(prompt, { maxTokens, ignoreEos: true, ...(signal && { signal }) })
      .result;
    throwIfAborted(signal, 'bench');
    return { ids: tokens, ttftMs: stats.ttft_ms, tokenMs: 1000 / stats.tokens_per_second };
  };
  return {
    name: 'splitkv',
    device: `WebGPU: ${model.info.adapter.name}`,
    prompted: (prompt): Answering => ({
      logits: async () => (await model.logits(prompt)).rows[0]!,
      answer: (maxTokens) => answer(model, prompt, maxTokens),
    }),
    async filled({ prompt, ...present }): Promise<Answering> {
      const kv = handedKv(present, prompt.length, opened.config, runner.options.kvType);
      const given = new LoadedModel({ ...opened, prefiller: givenKv(kv) }, how);
      return {
        async logits() {
          await runner.takeOver(prompt, 1, { seed: 0 }, kv);
          try {
            await runner.sampleFirst();
            return await runner.slotLogits(0);
          } finally {
            await runner.release();
          }
        },
        answer: (maxTokens) => answer(given, prompt, maxTokens),
      };
    },
    dispose: () => model.dispose(),
  };
}

/** A prefill worker that has what it gives already. */
const givenKv = (kv: HandedKv): PrefillWorker => ({
  kind: 'splitkv',
  atOnce: 1,
  adapter: 'computed before',
  weightBytes: 0,
  prefill: () => Promise.resolve(kv),
  assertUsable() {},
  recover: () => Promise.resolve(),
  dispose: () => Promise.resolve(),
});
