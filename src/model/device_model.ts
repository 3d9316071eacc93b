import { loadFast } from '../../shaders/linear/fast/fast.js';
import { loadKept } from '../../shaders/linear/kept/kept.js';
import type { Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import { hasState, type ModelConfig } from './config/model_config.js';
import type { SamplesConfig } from './config/sound_config.js';
import type { VisionConfig } from './config/vision_config.js';
import { Decoder } from './forward/decoder.js';
import type { CacheOptions } from './layers/attention/cache.js';
import { loadModelWeights, type LoadWeightsOptions, type WeightProgress } from './weights/weight_loader.js';
import type { SoundEncoder } from './sound/encoder.js';
import type { Embedder } from './vision/embedder.js';
import type { ImageEncoder } from './vision/encoder.js';
import { TokenRows } from './weights/token_rows.js';
import { eachOf, type WeightTypes } from './weights/weight_types.js';
import { rankSlice } from './shape.js';
import { GqaLayers } from './layers/attention/gqa.js';
import type { LayerKinds } from './layers/layer.js';
import { DenseLayers } from './layers/mlp/dense.js';
import { perLayerTable } from './layers/per_layer_weights.js';
import type { World } from './layers/world.js';

/** A model's weights on a device, and the program that runs them. */
export interface DeviceModel {
  readonly type: WeightTypes;
  /** Bytes of the weights on the GPU. */
  readonly bytes: number;
  /** Of models whose layers have inputs of their own: rows that each step's tokens bring. */
  readonly tokenRows: TokenRows | undefined;
  /** Of models that take pictures, on the first rank. */
  readonly encoder: ImageEncoder | Embedder | undefined;
  /** Of models that take sound, likewise. */
  readonly soundEncoder: SoundEncoder | Embedder | undefined;
  createForward(cache: CacheOptions): Decoder;
}

/** Loads a rank's weights of any supported model. @throws as `loadModelWeights`. */
export async function loadWeights(
  device: Device,
  config: ModelConfig,
  reader: TensorReader,
  type: WeightTypes,
  world: World,
  options: LoadWeightsOptions = {},
): Promise<DeviceModel> {
  const slice = rankSlice(world.plan, world.rank, config);
  const table = perLayerTable(config);
  const tokenRows = table && new TokenRows(reader, table);
  // What one rank has stored is there for the others.
  const stored = world.rank === 0 ? (tokenRows?.storedBytes ?? 0) : 0;
  let latest: WeightProgress | undefined;
  const onProgress = (progress: WeightProgress): void => {
    latest = progress;
    options.onProgress?.({ ...progress, totalBytes: progress.totalBytes + stored });
  };
  await loadKept(eachOf(type));
  const weights = await loadModelWeights(device, config, reader, type, { ...options, slice, onProgress });
  if (stored > 0) {
    const tensor = table!.name;
    await tokenRows!.store(
      (bytes) => latest && onProgress({ ...latest, tensor, loadedBytes: latest.loadedBytes + bytes }),
      options.signal,
    );
  }
  const { vision, sound, hiddenSize } = config;
  let encoder: DeviceModel['encoder'];
  let soundEncoder: DeviceModel['soundEncoder'];
  if (world.rank === 0) {
    const beside = ({ loadedBytes, totalBytes, tensor }: WeightProgress): void => {
      if (!latest) return;
      const { totalBytes: before } = latest;
      options.onProgress?.({ ...latest, tensor, loadedBytes: before + loadedBytes, totalBytes: before + totalBytes });
    };
    const own = { signal: options.signal, onProgress: beside };
    const bare = async (of: VisionConfig | SamplesConfig): Promise<Embedder> =>
      (await import('./vision/embedder.js')).loadEmbedder(device, of, hiddenSize, reader, type, own);
    if (vision && vision.tower.layers.length === 0) encoder = await bare(vision);
    else if (vision)
      encoder = await (await import('./vision/encoder.js')).loadEncoder(device, vision, hiddenSize, reader, type, own);
    if (sound && 'frame' in sound) soundEncoder = await bare(sound);
    else if (sound) {
      const { loadSoundEncoder } = await import('./sound/encoder.js');
      soundEncoder = await loadSoundEncoder(device, sound, hiddenSize, reader, type, own);
    }
  }
  const kinds = await layerKinds(config);
  if (device.traits.fast) await loadFast();
  const bytes = weights.bytes + (encoder?.bytes ?? 0) + (soundEncoder?.bytes ?? 0);
  return {
    ...weights,
    bytes,
    tokenRows,
    encoder,
    soundEncoder,
    createForward: (cache) => new Decoder(device, config, weights, cache, world, kinds),
  };
}

/** The kinds that a model has. Those that few models have are parts of their own, which the others needn't download. */
async function layerKinds({ layers }: Pick<ModelConfig, 'layers'>): Promise<LayerKinds> {
  const has = (kind: string): boolean =>
    layers.some(({ attention, mlp }) => attention.kind === kind || mlp.kind === kind);
  const mla = has('mla') ? await import('./layers/attention/mla.js') : undefined;
  const recurrent = hasState({ layers }) ? await import('./layers/recurrent/recurrent.js') : undefined;
  const experts = has('experts') ? await import('./layers/mlp/experts.js') : undefined;
  return {
    attention: {
      gqa: GqaLayers,
      mla: mla?.MlaLayers,
      conv: recurrent?.RecurrentLayers,
      delta: recurrent?.RecurrentLayers,
      mamba: recurrent?.RecurrentLayers,
    },
    mlp: { gated: DenseLayers, plain: DenseLayers, experts: experts?.ExpertLayers },
  };
}
