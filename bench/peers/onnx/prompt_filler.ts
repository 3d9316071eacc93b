/**
 * Room: prompts by onnxruntime-web: a graph of plain operators written from the ranks' own weights (llama_graph.ts,
 * graph.ts), as protocol buffers (proto.ts), and its keys and values as blocks (kv_blocks.ts).
 */

import type { WeightType } from '../../../shaders/linear/pack.js';
import { throwIfAborted, unsupportedError } from '../../../src/base/errors.js';
import type { TensorReader } from '../../../src/loader/index.js';
import { attentionOf, type ModelConfig } from '../../../src/model/config/model_config.js';
import { type DenseModel, denseModel } from './dense_model.js';
import type { KvType } from '../../../src/model/layers/attention/cache.js';
import { activationStride } from '../../../src/model/layers/roles.js';
import { ropeTable } from '../../../src/model/layers/attention/rope_table.js';
import { ceilDiv } from '../../../src/base/math.js';
import type { RunnerOptions } from '../../../src/engine/contracts/rank.js';
import { KV_BLOCK } from '../../../src/base/kv_units.js';
import type { HandedKv } from '../../../src/engine/contracts/prefill_worker.js';
import { buildLlamaGraph, type GraphWeightsOptions } from './graph_weights.js';
import { cacheBlocks } from './kv_blocks.js';
import { NAMES } from './llama_graph.js';
import { type Ort, openWasm, type OrtSession, type OrtTensor } from './runtime.js';

/** Added to scores that a row may not see. */
const HIDDEN = -1e30;

export interface FillerOptions extends GraphWeightsOptions {
  readonly config: ModelConfig;
  readonly reader: TensorReader;
  readonly type: WeightType;
  readonly runner: Pick<RunnerOptions, 'contextLength' | 'prefillChunk' | 'kvType'>;
  /** In pages: URL of the package's dist folder. */
  readonly folder?: string | undefined;
}

export interface PresentKv {
  /** f32 [kv_heads][tokens][head_dim] each; keys, then values of a layer. */
  readonly present: readonly { readonly which: 'key' | 'value'; readonly data: Float32Array<ArrayBuffer> }[];
  /** f32 [hiddenStride]: the last layer's output for the last token, before the final norm. */
  readonly lastRow: Float32Array;
}

/** Prompts by onnxruntime-web's WebAssembly, on a graph that is built from the checkpoint: for contexts that all runtimes are given. */
export class PromptFiller {
  readonly #rope: Float32Array;

  private constructor(
    readonly ort: Ort,
    readonly session: OrtSession,
    readonly model: DenseModel,
    readonly runner: FillerOptions['runner'],
  ) {
    this.#rope = ropeTable(model.attention.rope, runner.contextLength);
  }

  /** @throws SplitkvError `unsupported` for a model that there is no graph for, or without the package; as the checkpoint's reader */
  static async open({ config, reader, type, runner, folder, ...options }: FillerOptions): Promise<PromptFiller> {
    const dense = denseModel(config);
    if (!dense)
      throw unsupportedError(`there is no graph of ${config.architecture}, whose layers do more than Llama's`);
    const ort = await openWasm(folder);
    const { model, files } = await buildLlamaGraph(dense, reader, type, options);
    const session = await ort.InferenceSession.create(model, { executionProviders: ['wasm'], externalData: files });
    return new PromptFiller(ort, session, dense, runner);
  }

  /** Keys and values of a prompt, layer by layer, and what the last layer gave for its last token. */
  async present(prompt: readonly number[], signal?: AbortSignal): Promise<PresentKv> {
    const { config, attention } = this.model;
    const { kvHeads, headDim } = attention;
    const names = config.layers
      .map((_, layer) =>
        (['key', 'value'] as const).map((which) => ({
          which,
          past: NAMES.past(layer, which),
          present: NAMES.present(layer, which),
        })),
      )
      .flat();
    const empty = (): OrtTensor => new this.ort.Tensor('float32', new Float32Array(), [kvHeads, 0, headDim]);
    let caches = names.map(empty);
    const lastRow = new Float32Array(activationStride(config.hiddenSize));
    try {
      for (let start = 0; start < prompt.length; start += this.runner.prefillChunk) {
        throwIfAborted(signal, 'prefill');
        const tokens = prompt.slice(start, start + this.runner.prefillChunk);
        const feeds = Object.fromEntries(names.map(({ past }, index) => [past, caches[index]!]));
        const results = await this.session.run({ ...feeds, ...this.#inputs(tokens, start) });
        for (const cache of caches) cache.dispose();
        caches = names.map(({ present }) => results[present]!);
        lastRow.set(results[NAMES.lastRow]!.data);
        results[NAMES.lastRow]!.dispose();
      }
      return { present: names.map(({ which }, index) => ({ which, data: caches[index]!.data })), lastRow };
    } finally {
      for (const cache of caches) cache.dispose();
    }
  }

  /** What a run of tokens needs beside the cache before it. */
  #inputs(tokens: readonly number[], start: number): Record<string, OrtTensor> {
    const { Tensor } = this.ort;
    const rows = tokens.length;
    const half = this.model.attention.headDim / 2;
    const turns = this.#rope.subarray(start * half * 2, (start + rows) * half * 2);
    const every = (offset: 0 | 1): Float32Array => turns.filter((_, index) => index % 2 === offset);
    const length = start + rows;
    const mask = new Float32Array(rows * length);
    for (let row = 0; row < rows; row++) mask.fill(HIDDEN, row * length + start + row + 1, (row + 1) * length);
    return {
      [NAMES.tokens]: new Tensor('int64', BigInt64Array.from(tokens, BigInt), [rows]),
      [NAMES.cos]: new Tensor('float32', every(0), [rows, 1, half]),
      [NAMES.sin]: new Tensor('float32', every(1), [rows, 1, half]),
      [NAMES.mask]: new Tensor('float32', mask, [rows, length]),
    };
  }

  dispose(): Promise<void> {
    return this.session.release();
  }
}

/** Keys and values as ranks take them over. */
export function handedKv(
  { present, lastRow }: PresentKv,
  tokens: number,
  config: ModelConfig,
  kvType: KvType,
): HandedKv {
  const { kvHeads, headDim } = attentionOf(config, 'gqa');
  const shape = { kvHeads, headDim, kvType, block: KV_BLOCK };
  return {
    tokens,
    blocks: ceilDiv(tokens, KV_BLOCK),
    buffers: present.map(({ which, data }) => cacheBlocks(which, data, tokens, shape)),
    lastRow,
  };
}
