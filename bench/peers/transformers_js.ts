import { halfFromFloat } from '../../shaders/linear/float16.js';
import type { WeightType } from '../../shaders/linear/pack.js';
import { SplitkvError, unsupportedError } from '../../src/base/errors.js';
import type { TensorReader } from '../../src/loader/index.js';
import { attentionOf, type ModelConfig } from '../../src/model/config/model_config.js';
import { DECODE_NAMES, decodeGraph } from './kernels/decode_graph.js';
import { NO_F16 } from './ort_model.js';
import type { Answering, FilledContext, PeerAnswer, PeerModel } from './peer_model.js';
import { kvOf } from './peer_weights.js';

/** The part of transformers.js that is used here. */
export interface TransformersModule {
  readonly env: {
    readonly version: string;
    allowLocalModels: boolean;
    allowRemoteModels: boolean;
    localModelPath: string;
    useBrowserCache: boolean;
    useWasmCache: boolean;
    fetch: (url: string | URL) => Promise<Response>;
    readonly backends: { readonly onnx: { readonly wasm: { wasmPaths: unknown; numThreads: number } } };
  };
  readonly Tensor: new (
    type: 'int64' | 'float32' | 'float16',
    data: BigInt64Array | Float32Array | Uint16Array,
    dims: readonly number[],
  ) => object;
  readonly DynamicCache: new (entries: Readonly<Record<string, object>>) => { dispose(): Promise<void> };
  readonly AutoModelForCausalLM: Loading<Generating>;
  readonly AutoModelForImageTextToText: Loading<
    Generating & { encode_image(inputs: object): Promise<{ readonly data: Float32Array }> }
  >;
}

interface Loading<Model> {
  from_pretrained(name: string, options: object): Promise<Model>;
}

interface Generating {
  generate(options: object): Promise<unknown>;
  dispose(): Promise<unknown>;
}

/** URLs of the packages' dist folders. */
export interface TransformersPlaces {
  readonly transformers: string;
  readonly onnxruntimeCommon: string;
  /** The version of onnxruntime-web that transformers.js comes with. */
  readonly onnxruntimeWeb: string;
}

export interface TransformersOptions {
  readonly config: ModelConfig;
  /** The checkpoint's config.json. */
  readonly configJson: Readonly<Record<string, unknown>>;
  readonly reader: TensorReader;
  readonly weights: WeightType;
  readonly contextLength: number;
  readonly device: GPUDevice;
}

export const FOLDER = 'peer-model';

/**
 * The model in transformers.js: the graph that its models have, its generation loop, its own version of onnxruntime-web.
 * @throws SplitkvError `unsupported` where the packages can't be loaded, or for f16 where the adapter has none
 */
export async function openTransformers(places: TransformersPlaces, options: TransformersOptions): Promise<PeerModel> {
  const { config, configJson, reader, weights, contextLength, device } = options;
  const { kvHeads, headDim } = attentionOf(config, 'gqa');
  if (weights === 'f16' && !device.features.has('shader-f16')) throw unsupportedError(NO_F16);
  const { model } = await decodeGraph(config, reader, {
    weights,
    positions: contextLength,
    lengths: 'mask',
    place: 'model',
  });
  const { AutoModelForCausalLM, DynamicCache, Tensor, env } = await transformersOf(places, {
    'config.json': JSON.stringify({
      ...endless(configJson),
      head_dim: headDim,
      num_key_value_heads: kvHeads,
      ...cachedAs(weights),
    }),
    'onnx/model.onnx': model,
  });
  const loaded = await AutoModelForCausalLM.from_pretrained(FOLDER, onDevice(device));
  /** Keys and values of all but the prompt's last token. */
  const cacheOf = ({ prompt, present }: FilledContext) => {
    const before = prompt.length - 1;
    const entries = present.map(({ which, data }, index) => {
      const kept = Float32Array.from({ length: kvHeads * before * headDim }, (_, at) => {
        const row = before * headDim;
        return data[Math.floor(at / row) * (row + headDim) + (at % row)]!;
      });
      const dims = [1, kvHeads, before, headDim];
      const tensor =
        kvOf(weights) === 'f16'
          ? new Tensor('float16', Uint16Array.from(kept, halfFromFloat), dims)
          : new Tensor('float32', kept, dims);
      return [DECODE_NAMES.past(index >> 1, which), tensor] as const;
    });
    return new DynamicCache(Object.fromEntries(entries));
  };
  const answering = (prompt: readonly number[], context: FilledContext | undefined): Answering => ({
    async answer(maxTokens) {
      const cache = context && cacheOf(context);
      const answer = await greedyAnswer(loaded, Tensor, prompt, maxTokens, cache && { past_key_values: cache });
      await cache?.dispose(); // its own are left alone
      return answer;
    },
  });
  return {
    name: `transformers.js ${env.version}`,
    device: 'WebGPU',
    prompted: (prompt) => answering(prompt, undefined),
    filled: (context) => Promise.resolve(answering(context.prompt, context)),
    async dispose() {
      await loaded.dispose();
    },
  };
}

/** @param more of `generate`'s options */
export async function greedyAnswer(
  loaded: Generating,
  Tensor: TransformersModule['Tensor'],
  prompt: readonly number[],
  maxTokens: number,
  more: object = {},
): Promise<PeerAnswer> {
  const ids: number[] = [];
  let first = 0;
  let prompted = false;
  const streamer = {
    put(value: readonly (readonly bigint[])[]): void {
      if (prompted) {
        if (ids.length === 0) first = performance.now();
        ids.push(...value[0]!.map(Number));
      }
      prompted = true; // what comes first is the prompt itself
    },
    end(): void {},
  };
  const dims = [1, prompt.length];
  const started = performance.now();
  await loaded.generate({
    inputs: new Tensor('int64', BigInt64Array.from(prompt, BigInt), dims),
    attention_mask: new Tensor('int64', new BigInt64Array(prompt.length).fill(1n), dims),
    max_new_tokens: maxTokens,
    do_sample: false,
    streamer,
    ...more,
  });
  return { ids, ttftMs: first - started, tokenMs: (performance.now() - first) / (maxTokens - 1) };
}

/** Without the ids that end an answer, none ends one. */
export function endless({ eos_token_id: _, ...plain }: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return plain;
}

/** What config.json says of the cache's type. */
export const cachedAs = (weights: WeightType) => ({
  'transformers.js_config': { kv_cache_dtype: kvOf(weights) === 'f16' ? 'float16' : 'float32' },
});

/** Graphs say themselves in what they compute. */
export const onDevice = (device: GPUDevice) => ({
  dtype: 'fp32',
  device: 'webgpu',
  session_options: { executionProviders: [{ name: 'webgpu', device }] },
});

/**
 * The library, for which the folder `FOLDER` has these files.
 * @throws SplitkvError `unsupported` where the packages can't be loaded
 */
export async function transformersOf(
  places: TransformersPlaces,
  files: Readonly<Record<string, BodyInit>>,
): Promise<TransformersModule> {
  const module = await importTransformers(places);
  const { env } = module;
  env.allowLocalModels = true;
  env.allowRemoteModels = false;
  env.localModelPath = '/';
  env.useBrowserCache = false;
  env.useWasmCache = false;
  const { wasm } = env.backends.onnx;
  wasm.wasmPaths = places.onnxruntimeWeb;
  wasm.numThreads = 1;
  env.fetch = async (url) => {
    const found = Object.entries(files).find(([name]) => String(url).endsWith(`${FOLDER}/${name}`));
    return found ? new Response(found[1]) : new Response('', { status: 404 });
  };
  return module;
}

async function importTransformers(places: TransformersPlaces): Promise<TransformersModule> {
  // Its modules name each other as bundlers resolve them.
  const map = document.createElement('script');
  map.type = 'importmap';
  map.textContent = JSON.stringify({
    imports: {
      'onnxruntime-common': `${places.onnxruntimeCommon}esm/index.js`,
      'onnxruntime-web/webgpu': `${places.onnxruntimeWeb}ort.webgpu.bundle.min.mjs`,
    },
  });
  document.head.append(map);
  try {
    return (await import(/* @vite-ignore */ `${places.transformers}transformers.web.js`)) as TransformersModule;
  } catch (error) {
    throw new SplitkvError('unsupported', `transformers.js can't be loaded: ${String(error)}`, { cause: error });
  }
}
