import type { CutKind } from '../../images/cuts.js';
import type { ConfigReader } from './config_reader.js';
import type { DenseMlpConfig, GqaConfig, LayerConfig, ModelConfig, NormConfig } from './model_config.js';
import type { RopeConfig } from './rope_config.js';
import { range } from '../../base/lists.js';

/**
 * An encoder of pictures beside a decoder: patches of a square tile, or of a picture of any size, become rows that take the places of
 * placeholders. Sizes are in pixels and elements.
 */
export interface VisionConfig {
  /** How pictures are cut, and announced in prompts (src/images). */
  readonly kind: CutKind;
  /** A placeholder's id, of which a prompt has one for each row. */
  readonly imageToken: number;
  /** What stands for a picture in a text. */
  readonly mark: number;
  /** Of a tile's side (of any size: of the largest square's), and of a patch's. */
  readonly image: number;
  readonly patch: number;
  /** So many patches by so many neighbours become a row of the decoder: one behind the other, or their average. */
  readonly merge: number;
  readonly average?: AverageConfig;
  /** Rows that are joined go through an MLP. */
  readonly merger?: MergerConfig;
  /** Of pictures of any size: the square table of patches' places, which is stretched over a picture. */
  readonly places?: PlacesConfig;
  /** Of layers that are bounded: rows of a side whose patches see each other, and no others. */
  readonly window?: number;
  /** Rows of a picture, at most, where each sees all of them; undefined: each sees those up to itself. */
  readonly runs?: number;
  /** True: only in layers with a window. */
  readonly windowedRuns?: boolean;
  /** What goes into the layers' matrices and comes out of them has bounds, which the file has. */
  readonly clipped?: boolean;
  /** The GGUF file that has it, where it isn't the decoder's. */
  readonly file?: string;
  /**
   * The layers, of patches in the order of `patchOrder`; where it has none, each patch becomes a row by itself (vision/embedder.ts). It has
   * no vocabulary.
   */
  readonly tower: ModelConfig;
}

export interface PlacesConfig {
  readonly side: number;
  /**
   * Its corners lie on the picture's; or its pixels are resized as a picture's are, antialiased; or there are two tables of a side, of the
   * column and of the line, whose rows are added; or there is none.
   */
  readonly by: 'corners' | 'pixels' | 'axes' | 'none';
}

/** A row is norm(scale * (the sum of its patches)); standardised: norm((that - bias) * factor), whose norm has no weights. */
export interface AverageConfig {
  readonly norm: NormConfig;
  readonly scale: number;
  /** The norm has no weights, nor is there one before. */
  readonly plain?: true;
  readonly standardized?: boolean;
}

/** out(gelu(in(norm(x)))), with gelu by erf. */
export interface MergerConfig {
  readonly norm?: NormConfig;
  /** Between the two. */
  readonly width: number;
  /** Layers of the encoder behind which rows are merged, too: what the n-th gives is added behind the decoder's n-th layer. */
  readonly taps: readonly number[];
}

/** Lines and columns. */
export type Grid = readonly [lines: number, columns: number];

/** Patches of a tile, at most of a picture of any size. */
export function patchGrid({ image, patch }: Pick<VisionConfig, 'image' | 'patch'>): Grid {
  const side = Math.floor(image / patch);
  return [side, side];
}

export const patchesOf = (vision: Pick<VisionConfig, 'image' | 'patch'>): number => patchGrid(vision)[0] ** 2;
/** Rows of the decoder that they become. */
export const imageRows = (vision: Pick<VisionConfig, 'image' | 'patch' | 'merge'>): number =>
  patchesOf(vision) / vision.merge ** 2;
/** Elements of such a row: the decoder's, and what is added behind its first layers. */
export const rowWidth = ({ merger }: Pick<VisionConfig, 'merger'>, textWidth: number): number =>
  textWidth * (1 + (merger?.taps.length ?? 0));

/** A picture's rows by window, in the encoder's order; without windows all are of one. */
export function windowsOf(
  { merge, window = MOST_SIDE }: Pick<VisionConfig, 'merge' | 'window'>,
  grid: Grid,
): number[][] {
  const [high, wide] = grid.map((patches) => patches / merge) as [number, number];
  const corners = (of: number): number[] => range(0, Math.ceil(of / window)).map((at) => at * window);
  const sides = (first: number, of: number): number[] => range(first, Math.min(of, first + window));
  return corners(high).flatMap((top) =>
    corners(wide).map((left) =>
      sides(top, high).flatMap((line) => sides(left, wide).map((column) => line * wide + column)),
    ),
  );
}

/**
 * By row of the encoder's: which patch, counted row by row. Those that become a row lie side by side; where they are averaged first the
 * first one of each row, with room for as many rows as there may be (-1: none), then the second.
 */
export function patchOrder(
  vision: Pick<VisionConfig, 'merge' | 'average' | 'image' | 'patch' | 'window'>,
  [lines, columns]: Grid,
): number[] {
  const { merge, average } = vision;
  const blocks = (lines * columns) / merge ** 2;
  const across = columns / merge;
  const most = imageRows(vision);
  const rows = average ? [] : windowsOf(vision, [lines, columns]).flat();
  return range(0, average ? most * merge ** 2 : lines * columns).map((at) => {
    const [block, inside] = average
      ? [at % most, Math.floor(at / most)]
      : [rows[Math.floor(at / merge ** 2)]!, at % merge ** 2];
    if (block >= blocks) return -1;
    const line = Math.floor(block / across) * merge + Math.floor(inside / merge);
    return line * columns + (block % across) * merge + (inside % merge);
  });
}

/** What stands for a row, and in texts for a picture: the first of these keys, or the class's default. */
export function tokensOf(config: ConfigReader, keys: readonly string[], otherwise: number) {
  const ids = keys.flatMap((key) => config.optionalInteger(key, { min: 0, max: 2 ** 24 - 1 }) ?? []);
  const imageToken = ids[0] ?? otherwise;
  return { imageToken, mark: imageToken };
}

/** @throws SplitkvError `unsupported` for pictures of more rows than the text part's window */
export function checkRuns(config: ConfigReader, key: string, rows: number, otherwise: number): void {
  const window = config.optionalObject('text_config')?.optionalInteger('sliding_window') ?? otherwise;
  if (rows > window) throw config.unsupported(key, rows, `at most the window of ${window}`);
}

export const firstWindow = (layers: ModelConfig['layers']): number | undefined =>
  layers.flatMap(({ attention }) => (attention.kind === 'gqa' ? (attention.window ?? []) : []))[0];

/** What tensors of an encoder are called here, whatever a checkpoint calls them (weights/stored_names.ts). */
const layer = 'vision.encoder.layers.{layer}';
const attention = `${layer}.self_attn`;
const tensors: ModelConfig['tensors'] = {
  embedding: 'vision.none',
  head: 'vision.none',
  norm: 'vision.post_layernorm',
  inputNorm: `${layer}.layer_norm1`,
  gqa: {
    q: `${attention}.q_proj`,
    k: `${attention}.k_proj`,
    v: `${attention}.v_proj`,
    o: `${attention}.out_proj`,
    qNorm: `${attention}.q_norm`,
    kNorm: `${attention}.k_norm`,
  },
  attentionOutNorm: `${layer}.post_attention_layernorm`,
  postNorm: `${layer}.layer_norm2`,
  mlpOutNorm: `${layer}.post_feedforward_layernorm`,
  plain: { up: `${layer}.mlp.fc1`, down: `${layer}.mlp.fc2` },
  gated: { gate: `${layer}.mlp.gate_proj`, up: `${layer}.mlp.fc1`, down: `${layer}.mlp.fc2` },
};

/** Of Qwen's, whose q, k and v are one matrix. */
const qwenTensors = { ...tensors, gqa: { ...tensors.gqa!, qkv: `${attention}.qkv` } };

/** Patches of a side, at most. */
const MOST_SIDE = 64;

const qwenDefaults = {
  depth: 27,
  hidden_size: 1152,
  intermediate_size: 4304,
  num_heads: 16,
  patch_size: 16,
  spatial_merge_size: 2,
  temporal_patch_size: 2,
  num_position_embeddings: 2304,
  hidden_act: 'gelu_pytorch_tanh',
};

/** What transformers takes for keys that a SigLIP's config leaves out. */
const siglipDefaults = {
  hidden_size: 768,
  intermediate_size: 3072,
  num_hidden_layers: 12,
  num_attention_heads: 12,
  image_size: 224,
  patch_size: 16,
  layer_norm_eps: 1e-6,
  hidden_act: 'gelu_pytorch_tanh',
};

const siglipNorm = (config: ConfigReader) =>
  ({ kind: 'layer', eps: config.positive('layer_norm_eps'), bias: true }) as const;
const siglipKeys = { heads: 'num_attention_heads', layers: 'num_hidden_layers' };

/**
 * A SigLIP encoder: LayerNorms and biases everywhere, an MLP without a gate, a learned row for each patch's place.
 * @param mergeOf `merge` of so many patches a side
 * @param defaults in place of SigLIP's own
 */
export function parseSiglip(
  config: ConfigReader,
  mergeOf: (side: number) => number,
  defaults: Readonly<Record<string, unknown>> = {},
): Pick<VisionConfig, 'image' | 'patch' | 'merge' | 'tower'> {
  config.setDefaults({ ...siglipDefaults, ...defaults });
  const size = config.raw('image_size');
  if (Array.isArray(size) && size[0] !== size[1]) throw config.unsupported('image_size', size, 'squares only');
  const image = Number(Array.isArray(size) ? size[0] : config.integer('image_size'));
  const patch = config.integer('patch_size');
  const side = Math.floor(image / patch);
  const merge = mergeOf(side);
  if (!(side >= 1 && side <= MOST_SIDE) || side % merge !== 0)
    throw config.unsupported('image_size', size, `up to ${MOST_SIDE} patches a side, a multiple of ${merge}`);
  return { image, patch, merge, tower: parseTower(config, side, siglipKeys, siglipNorm(config)) };
}

/** SigLIP 2's, which takes pictures of any size up to a square of `side` patches. */
export function parseSiglip2(
  config: ConfigReader,
  side: number,
): Pick<VisionConfig, 'image' | 'patch' | 'places' | 'tower'> {
  config.setDefaults({ ...siglipDefaults, num_patches: 256 });
  const patch = config.integer('patch_size');
  const tower = parseTower(config, side, siglipKeys, siglipNorm(config));
  return { image: side * patch, patch, places: parsePlaces(config, 'num_patches', 'pixels'), tower };
}

function parsePlaces(config: ConfigReader, key: string, by: PlacesConfig['by']): PlacesConfig {
  const places = config.integer(key);
  const side = Math.sqrt(places);
  if (!Number.isInteger(side)) throw config.invalid(key, places, 'the square of a side');
  return { side, by };
}

const rotated = ({ headDim }: GqaConfig): RopeConfig => ({
  theta: 1e4,
  scaling: null,
  dims: headDim,
  interleaved: false,
});

function parseQwenSizes(config: ConfigReader) {
  const frames = config.integer('temporal_patch_size');
  if (frames !== 2)
    throw config.unsupported('temporal_patch_size', frames, 'patches of 2 frames, which are one picture');
  return {
    patch: config.integer('patch_size'),
    merge: config.integer('spatial_merge_size', { min: 1, max: 16 }),
    layers: config.integer('depth', { min: 1, max: 256 }),
  };
}

/** Qwen3-VL's and Qwen3.5's: as SigLIP's, for pictures of any size, with places and rotations by line and column. */
export function parseQwenVision(config: ConfigReader): Omit<VisionConfig, 'imageToken' | 'mark'> {
  config.setDefaults(qwenDefaults);
  const { patch, merge, layers } = parseQwenSizes(config);
  const places = parsePlaces(config, 'num_position_embeddings', 'corners');
  const taps = config.raw('deepstack_visual_indexes') ?? [];
  const isLayer = (tap: unknown, at: number, all: unknown[]): boolean =>
    Number.isInteger(tap) && Number(tap) < layers && Number(tap) > (at === 0 ? -1 : Number(all[at - 1]));
  if (!Array.isArray(taps) || !taps.every(isLayer))
    throw config.invalid('deepstack_visual_indexes', taps, `an ascending list of layers below ${layers} (depth)`);
  const keys = { heads: 'num_heads', layers: 'depth' };
  const tower = parseTower(config, MOST_SIDE, keys, { kind: 'layer', eps: 1e-6, bias: true }, (gqa, mlp) => {
    return { attention: { ...gqa, rope: rotated(gqa) }, mlp };
  });
  return {
    kind: 'any size',
    image: MOST_SIDE * patch,
    patch,
    merge,
    places,
    merger: { width: tower.hiddenSize * merge ** 2, taps: taps as number[] },
    tower: { ...tower, tensors: qwenTensors },
  };
}

/** Qwen2.5-VL's: RMS norms, gates, rotations by line and column, and layers whose patches see those of a window alone. */
export function parseQwen25Vision(config: ConfigReader): Omit<VisionConfig, 'imageToken' | 'mark'> {
  config.setDefaults({
    depth: 32,
    hidden_size: 3584,
    intermediate_size: 3420,
    num_heads: 16,
    patch_size: 14,
    spatial_merge_size: 2,
    temporal_patch_size: 2,
    window_size: 112,
    fullatt_block_indexes: [7, 15, 23, 31],
    hidden_act: 'silu',
  });
  const { patch, merge, layers } = parseQwenSizes(config);
  const whole = config.raw('fullatt_block_indexes');
  if (!Array.isArray(whole) || !whole.every(Number.isInteger))
    throw config.invalid('fullatt_block_indexes', whole, `a list of layers below ${layers} (depth)`);
  const window = Math.floor(config.integer('window_size', { min: patch * merge }) / merge / patch);
  const norm = { kind: 'rms', eps: 1e-6 } as const;
  const gated = (gqa: GqaConfig, { width }: DenseMlpConfig, layer: number): LayerConfig => ({
    attention: { ...gqa, rope: rotated(gqa), bothWays: whole.includes(layer) || 'bounded' },
    mlp: { kind: 'gated', width, activation: 'silu', bias: true },
  });
  const tower = parseTower(config, MOST_SIDE, { heads: 'num_heads', layers: 'depth' }, norm, gated, 'silu');
  return {
    kind: 'any size',
    image: MOST_SIDE * patch,
    patch,
    merge,
    places: { side: 0, by: 'none' },
    merger: { width: tower.hiddenSize * merge ** 2, taps: [] },
    window,
    tower,
  };
}

/**
 * Gemma 4's: RMS norms on both sides, of queries, keys and values too, a gate, places and rotations by column and line; patches are averaged,
 * and their norm has no weights.
 * @param rows of a picture, at most
 */
export function parseGemma4Vision(config: ConfigReader, rows: number): Omit<VisionConfig, 'imageToken' | 'mark'> {
  config.setDefaults({
    ...siglipDefaults,
    num_hidden_layers: 16,
    pooling_kernel_size: 3,
    position_embedding_size: 10240,
    rms_norm_eps: 1e-6,
    // It has another key.
    hidden_act: config.raw('hidden_activation') ?? siglipDefaults.hidden_act,
  });
  const patch = config.integer('patch_size');
  const merge = config.integer('pooling_kernel_size', { max: 16 });
  const side = merge * Math.ceil(Math.sqrt(rows));
  const norm = { kind: 'rms', eps: config.positive('rms_norm_eps') } as const;
  const theta = config.optionalObject('rope_parameters')?.optionalPositive('rope_theta') ?? 100;
  const bias = { q: false, k: false, v: false, o: false };
  const tower = parseTower(config, side, siglipKeys, norm, (gqa, { width, activation }) => {
    const rope = { theta, scaling: null, dims: gqa.headDim, interleaved: 'by axis' } as const;
    const attention: GqaConfig = { ...gqa, bias, qkNorm: 'head', valueNorm: true, scale: 1, rope };
    return { attention, mlp: { kind: 'gated', width, activation, bias: false }, norms: 'both' };
  });
  const standardized = config.boolean('standardize', false);
  return {
    kind: 'all rows',
    image: side * patch,
    patch,
    merge,
    average: { norm, scale: Math.sqrt(tower.hiddenSize) / merge ** 2, plain: true, standardized },
    places: { side: config.integer('position_embedding_size', { min: rows * merge }), by: 'axes' },
    clipped: config.boolean('use_clipped_linears', false),
    tower,
  };
}

/** Gemma 4 12B's: no layers, and patches as large as a row. @param rows of a picture, at most */
export function parseGemma4Patches(config: ConfigReader, rows: number): Omit<VisionConfig, 'imageToken' | 'mark'> {
  const width = { mm_embed_dim: 3840, output_proj_dims: 3840 };
  config.setDefaults({ patch_size: 16, pooling_kernel_size: 3, mm_posemb_size: 1120, rms_norm_eps: 1e-6, ...width });
  const patch = config.integer('patch_size') * config.integer('pooling_kernel_size', { max: 16 });
  const hiddenSize = config.integer('mm_embed_dim');
  for (const [key, expected] of [
    ['output_proj_dims', hiddenSize],
    ['model_patch_size', patch],
  ] as const) {
    const value = config.optionalInteger(key) ?? expected;
    if (value !== expected) throw config.unsupported(key, value, `${expected}, as the other sizes make it`);
  }
  const side = Math.ceil(Math.sqrt(rows));
  return {
    kind: 'all rows',
    image: side * patch,
    patch,
    merge: 1,
    places: { side: config.integer('mm_posemb_size', { min: rows }), by: 'axes' },
    tower: towerOf(hiddenSize, side, { kind: 'rms', eps: config.positive('rms_norm_eps') }, []),
  };
}

/**
 * Layers with biases everywhere, and an MLP without a gate, unless `layerOf` makes others of them.
 * @param keys what numbers are called
 * @param expected activation
 */
function parseTower(
  config: ConfigReader,
  side: number,
  keys: { readonly heads: string; readonly layers: string },
  norm: NormConfig,
  layerOf = (attention: GqaConfig, mlp: DenseMlpConfig, _layer: number): LayerConfig => ({ attention, mlp }),
  expected = 'gelu_pytorch_tanh',
): ModelConfig {
  const hiddenSize = config.integer('hidden_size');
  // Rows that are joined have nothing between them.
  if (hiddenSize % 64 !== 0) throw config.unsupported('hidden_size', hiddenSize, 'a multiple of 64');
  const heads = config.integer(keys.heads, { min: 1, max: 256 });
  const headDim = hiddenSize / heads;
  if (!Number.isInteger(headDim / 8)) throw config.invalid(keys.heads, heads, 'heads of whole eights');
  const activation = config.optionalString('hidden_act');
  if (activation !== expected) throw config.unsupported('hidden_act', activation, `only '${expected}'`);
  const gqa: GqaConfig = {
    kind: 'gqa',
    heads,
    kvHeads: heads,
    headDim,
    bias: { q: true, k: true, v: true, o: true },
    qkNorm: false,
    rope: null,
    scale: headDim ** -0.5,
    bothWays: true,
  };
  const width = config.integer('intermediate_size');
  const mlp: DenseMlpConfig = { kind: 'plain', width, activation: 'gelu_tanh', bias: true };
  const layers = range(0, config.integer(keys.layers, { min: 1, max: 256 })).map((layer) => layerOf(gqa, mlp, layer));
  return towerOf(hiddenSize, side, norm, layers);
}

const towerOf = (hiddenSize: number, side: number, norm: NormConfig, layers: ModelConfig['layers']): ModelConfig => ({
  architecture: 'siglip',
  hiddenSize,
  vocabSize: 32,
  maxPositions: side * side,
  norm,
  tieWordEmbeddings: true,
  embeddingScale: 1,
  residualScale: 1,
  logitScale: 1,
  eosTokenIds: [],
  bosTokenId: null,
  layers,
  tensors,
});
