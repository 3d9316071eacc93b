import { load, type Model } from '../../index.js';
import type { HostRequest, ModelHost } from './model_host.js';
import { answerAll, chatTurn } from '../../app/shared/chat_turn.js';
import { progressLine } from '../../app/shared/progress.js';

/** Loads the model in this process (WebGPU by Dawn). */
export async function openNodeHost({
  model: where,
  options,
  signal,
  onProgress,
  onWarning,
}: HostRequest): Promise<ModelHost> {
  const model: Model = await load(where, {
    ...options,
    signal,
    onWarning,
    onProgress: (progress) => onProgress(progressLine(progress)),
  });
  return {
    info: model.info,
    async generate(prompt, raw, generateOptions, onText) {
      const chat = typeof prompt === 'string' && model.info.hasChatTemplate && !raw;
      const generation = model.generate(
        chat ? { messages: [{ role: 'user', content: prompt }] } : prompt,
        generateOptions,
      );
      for await (const piece of generation) onText(piece);
      return generation.result;
    },
    generateMany: (prompts, raw, generateOptions) => answerAll(model, prompts, raw, generateOptions),
    turn: (request, turnSignal, onText) => chatTurn(model, request, turnSignal, onText),
    async logits(tokens, logitsOptions) {
      await model.logits(tokens, logitsOptions);
    },
    kept: (prompt) => model.kept(prompt, { signal }),
    stats: () => Promise.resolve(model.stats()),
    close: () => model.dispose(),
  };
}
