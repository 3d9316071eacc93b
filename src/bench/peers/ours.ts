import { throwIfAborted } from '../../base/errors.js';
import { load, type LoadOptions } from '../../index.js';
import type { PeerModel } from './peer_model.js';

/** This runtime. */
export async function openOurs(where: string, options: LoadOptions): Promise<PeerModel> {
  const model = await load(where, options);
  return {
    name: 'splitkv',
    device: `WebGPU: ${model.info.adapter.name}`,
    async logits(prompt) {
      return (await model.logits(prompt)).rows[0]!;
    },
    async answer(prompt, maxTokens) {
      const { signal } = options;
      const { tokens, stats } = await model.generate(prompt, { maxTokens, ignoreEos: true, ...(signal && { signal }) })
        .result;
      throwIfAborted(signal, 'bench');
      // The library counts all tokens from the end of the prompt; that time over one token less is what a step took at most.
      const seconds = tokens.length / stats.tokens_per_second;
      return { ids: tokens, ttftMs: stats.ttft_ms, tokenMs: (1000 * seconds) / (tokens.length - 1) };
    },
    dispose: () => model.dispose(),
  };
}
