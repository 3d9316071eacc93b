import { load, type Model } from '../../index.js';
import type { HostRequest, ModelHost } from './model_host.js';
import { answerAll, asPrompt, chatTurn } from '../../app/shared/chat_turn.js';
import { progressLine, progressPart } from '../../app/shared/progress.js';

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
    onProgress: (progress) => onProgress(progressLine(progress), progressPart(progress)),
  });
  return {
    info: model.info,
    async generate(prompt, feed, generateOptions, onText) {
      const generation = model.generate(asPrompt(model, prompt, feed), generateOptions);
      for await (const piece of generation) onText(piece);
      return generation.result;
    },
    generateMany: (prompts, feed, generateOptions) => answerAll(model, prompts, feed, generateOptions),
    turn: (request, turnSignal, onText) => chatTurn(model, request, turnSignal, onText),
    async logits(tokens, logitsOptions) {
      await model.logits(tokens, logitsOptions);
    },
    kept: (prompt) => model.kept(prompt, { signal }),
    stats: () => Promise.resolve(model.stats()),
    close: () => model.dispose(),
  };
}
