/**
 * Room: prompts by onnxruntime-web: a graph of plain operators written from the ranks' own weights (llama_graph.ts,
 * graph.ts), as protocol buffers (proto.ts), and its keys and values as blocks (kv_blocks.ts).
 */

import type { WeightType } from '../../../../shaders/linear/pack.js';
import { SplitkvError, throwIfAborted, unsupportedError } from '../../../base/errors.js';
import type { TensorReader } from '../../../loader/index.js';
import { attentionOf, type DenseModel, denseModel, type ModelConfig } from '../../../model/config/model_config.js';
import type { KvType } from '../../../model/layers/attention/cache.js';
import { activationStride } from '../../../model/layers/roles.js';
import { modelShape } from '../../../model/shape.js';
import { ropeTable } from '../../../model/layers/attention/rope_table.js';
import { ceilDiv } from '../../../base/math.js';
import { checkTogether, modelFeatures } from '../../../placement/index.js';
import type { RunnerOptions } from '../../contracts/rank.js';
import { KV_BLOCK } from '../../../base/kv_units.js';
import type { HandedKv } from '../../contracts/handed_kv.js';
import type { PrefillWorker } from '../../contracts/prefill_worker.js';
import { buildLlamaGraph, type GraphWeightsOptions } from './graph_weights.js';
import { cacheBlocks } from './kv_blocks.js';
import { NAMES } from './llama_graph.js';
import { openOrt, type OrtHost, type OrtRequest, type OrtSession, type OrtTensor } from './runtime.js';

/** Added to scores that a row may not see. */
const HIDDEN = -1e30;

export interface OnnxPrefillOptions extends GraphWeightsOptions {
  readonly config: ModelConfig;
  readonly reader: TensorReader;
  readonly type: WeightType;
  readonly runner: Pick<RunnerOptions, 'contextLength' | 'prefillChunk' | 'kvType'>;
  readonly request?: OrtRequest;
}

export interface PresentKv {
  /** f32 [kv_heads][tokens][head_dim] each; keys, then values of a layer. */
  readonly present: readonly { readonly which: 'key' | 'value'; readonly data: Float32Array<ArrayBuffer> }[];
  /** f32 [hiddenStride]: the last layer's output for the last token, before the final norm. */
  readonly lastRow: Float32Array;
}

/**
 * A prefill worker of onnxruntime-web: it runs a graph that is built from the checkpoint, and its present keys and values are
 * taken over as cache blocks.
 */
export class OnnxPrefill implements PrefillWorker {
  readonly kind = 'onnxruntime';
  readonly atOnce = 1;
  readonly #rope: Float32Array;
  #last: Promise<unknown> = Promise.resolve();

  private constructor(
    readonly host: OrtHost,
    readonly session: OrtSession,
    readonly model: DenseModel,
    readonly runner: OnnxPrefillOptions['runner'],
    readonly weightBytes: number,
  ) {
    this.#rope = ropeTable(model.attention.rope, runner.contextLength);
  }

  /**
   * @throws SplitkvError `unsupported` for a model that there is no graph for, or without the package; `limit` when the runtime
   *   can't take the graph; as the checkpoint's reader
   */
  static async open({ config, reader, type, runner, request, ...options }: OnnxPrefillOptions): Promise<OnnxPrefill> {
    checkTogether(['onnxPrefill', ...modelFeatures(modelShape(config))]);
    const dense = denseModel(config);
    if (!dense) {
      throw unsupportedError(
        `prefill kind 'onnxruntime' has no graph of ${config.architecture}, whose layers do more than Llama's: use prefill kind 'splitkv'`,
      );
    }
    const host = await openOrt(request);
    const { model, files } = await buildLlamaGraph(dense, reader, type, options);
    const weightBytes = files.reduce((sum, { data }) => sum + data.byteLength, 0);
    let session: OrtSession;
    try {
      session = await host.ort.InferenceSession.create(model, {
        executionProviders: [host.provider],
        externalData: files,
      });
    } catch (error) {
      throw new SplitkvError(
        'limit',
        `onnxruntime-web can't take the prefill graph (${error instanceof Error ? error.message : String(error)}); ` +
          "its WebAssembly memory ends at 4 GiB, and weights are f32 there: use prefill kind 'splitkv'",
        { cause: error },
      );
    }
    return new OnnxPrefill(host, session, dense, runner, weightBytes);
  }

  get adapter(): string {
    return this.host.place;
  }

  prefill(prompt: readonly number[], signal?: AbortSignal): Promise<HandedKv> {
    const result = this.#last.then(() => this.#compute(prompt, signal));
    this.#last = result.catch(() => {});
    return result;
  }

  async #compute(prompt: readonly number[], signal: AbortSignal | undefined): Promise<HandedKv> {
    return handedKv(await this.present(prompt, signal), prompt.length, this.model.config, this.runner.kvType);
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
    const empty = (): OrtTensor => new this.host.ort.Tensor('float32', new Float32Array(), [kvHeads, 0, headDim]);
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
    const { Tensor } = this.host.ort;
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

  assertUsable(): void {
    // Its memory is the process's own: there is no device to lose.
  }

  async recover(): Promise<void> {
    // As above.
  }

  async dispose(): Promise<void> {
    await this.#last;
    await this.session.release();
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
