import { SplitkvError } from '../../src/base/errors.js';
import type { TensorReader } from '../../src/loader/index.js';
import type { ModelConfig } from '../../src/model/config/model_config.js';
import { dummyVocabulary } from '../../src/model/testing/gguf/vocabulary.js';
import { ggufBytes } from './gguf_bytes.js';
import type { Answering, PeerModel } from './peer_model.js';
import { kvOf, type PeerWeights } from './peer_weights.js';

/** The part of wllama that is used here. */
interface WllamaModule {
  readonly Wllama: new (
    paths: { readonly default: string },
    config: object,
  ) => {
    loadModel(files: readonly Blob[], options: object): Promise<void>;
    createCompletion(options: object): Promise<{
      readonly choices: readonly { readonly text: string }[];
      readonly timings?: { readonly prompt_ms: number; readonly predicted_n: number; readonly predicted_ms: number };
    }>;
    exit(): Promise<void>;
  };
}

export interface WllamaOptions {
  readonly config: ModelConfig;
  readonly reader: TensorReader;
  readonly weights: PeerWeights;
  readonly contextLength: number;
  /** Its WebGPU needs shader-f16; without, and where it doesn't offload every layer, it runs on the CPU and says so. */
  readonly webgpu: boolean;
}

const TOKEN = /<t(\d+)>/g;

/**
 * llama.cpp as WebAssembly. It takes prompts as text only: the vocabulary given to it spells every token as `<t17>`, so ids go in and come out.
 * @param folder URL of the package's esm folder
 * @throws SplitkvError `unsupported` where it can't be loaded
 */
export async function openWllama(folder: string, options: WllamaOptions): Promise<PeerModel> {
  const { config, reader, weights, contextLength, webgpu } = options;
  let module: WllamaModule;
  try {
    module = (await import(/* @vite-ignore */ `${folder}index.js`)) as WllamaModule;
  } catch (error) {
    throw new SplitkvError('unsupported', `wllama can't be loaded from ${folder}: ${String(error)}`, { cause: error });
  }
  let offloaded = false;
  const listen = (...parts: unknown[]): void => {
    const [, layers, of] = /offloaded (\d+)\/(\d+) layers/.exec(parts.join(' ')) ?? [];
    if (layers !== undefined && layers === of && layers !== '0') offloaded = true;
  };
  const logger = { debug: listen, log: listen, warn: listen, error: listen };
  const wllama = new module.Wllama({ default: new URL(`${folder}wasm/wllama.wasm`, location.href).href }, { logger });
  const vocabulary = {
    ...dummyVocabulary(config.vocabSize),
    'tokenizer.ggml.tokens': {
      type: 'string[]',
      value: Array.from({ length: config.vocabSize }, (_, id) => `<t${id}>`),
    },
    // User-defined: found in a text as they are.
    'tokenizer.ggml.token_type': { type: 'i32[]', value: new Array<number>(config.vocabSize).fill(4) },
    'tokenizer.ggml.add_bos_token': { type: 'bool', value: false },
  } as const;
  const bytes = await ggufBytes(config, reader, weights, vocabulary);
  await wllama.loadModel([new Blob([bytes])], {
    n_ctx: Math.max(256, contextLength + 8),
    n_gpu_layers: webgpu ? 99 : 0,
    n_threads: 1,
    cache_type_k: kvOf(weights),
    cache_type_v: kvOf(weights),
    log_level: 2,
  });
  /** @param reused whether keys and values of a prompt that the answer before had too are used again */
  const answering = (prompt: readonly number[], reused: boolean): Answering => ({
    async answer(maxTokens) {
      const started = performance.now();
      const { choices, timings } = await wllama.createCompletion({
        prompt: prompt.map((id) => `<t${id}>`).join(''),
        max_tokens: maxTokens,
        temperature: 0,
        ignore_eos: true,
        cache_prompt: reused,
        n_cache_reuse: 0,
      });
      const whole = performance.now() - started;
      const ids = [...choices[0]!.text.matchAll(TOKEN)].map(([, id]) => Number(id));
      if (!timings) throw new SplitkvError('internal', 'wllama tells no timings, so nothing is timed');
      // Its own clock for the tokens after the first; all before them is the time to the first.
      const tokenMs = timings.predicted_ms / Math.max(1, timings.predicted_n - 1);
      return { ids, ttftMs: Math.max(timings.prompt_ms, whole - timings.predicted_ms), tokenMs };
    },
  });
  return {
    name: 'wllama',
    device: webgpu && offloaded ? 'WebGPU' : 'CPU (WebAssembly, 1 thread)',
    prompted: (prompt) => answering(prompt, false),
    async filled({ prompt }) {
      const subject = answering(prompt, true);
      await subject.answer(2);
      return subject;
    },
    dispose: () => wllama.exit(),
  };
}
