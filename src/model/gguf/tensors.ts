import { formatError, unsupportedError } from '../../base/errors.js';
import { nth, range, sum } from '../../base/lists.js';
import {
  absorbedView,
  columnsView,
  entryOf,
  type GgufFile,
  type GgufTensor,
  orderedView,
  rowsView,
  scaledView,
  type TensorEntry,
  type TensorIndex,
  vectorView,
} from '../../loader/index.js';
import type { DeltaConfig, GqaConfig, LayerConfig, MlaConfig, MlpConfig, ModelConfig } from '../config/model_config.js';
import type { GgufArchitecture } from './config.js';
import {
  type DeltaNames,
  type ExpertNames,
  type GatedMlpNames,
  type MambaNames,
  namesOf,
  numbered,
  type TensorNames,
} from '../config/tensor_names.js';
import { BOUNDS } from '../vision/encoder_specs.js';
import { pairsInHalves } from '../layers/attention/rope_table.js';

/** What llama.cpp calls the parts of a layer, by what a checkpoint's names call them here; `blk.N.`, `.weight` and `.bias` left out. */
const gqaParts = {
  q: 'attn_q',
  k: 'attn_k',
  v: 'attn_v',
  o: 'attn_output',
  qNorm: 'attn_q_norm',
  kNorm: 'attn_k_norm',
  qkv: 'attn_qkv',
};
const mlaParts = {
  q: 'attn_q',
  qDown: 'attn_q_a',
  qNorm: 'attn_q_a_norm',
  qUp: 'attn_q_b',
  kvDown: 'attn_kv_a_mqa',
  kvNorm: 'attn_kv_a_norm',
  kvUp: 'attn_kv_b',
  o: 'attn_output',
};
const gatedParts = (end = '') => ({ gate: `ffn_gate${end}`, up: `ffn_up${end}`, down: `ffn_down${end}` });
/** Gate and up in one. */
const fusedParts = { gateUp: 'ffn_up', down: 'ffn_down' };

const normParts = {
  inputNorm: 'attn_norm',
  attentionOutNorm: 'post_attention_norm',
  postNorm: 'ffn_norm',
  mlpOutNorm: 'post_ffw_norm',
};

const convParts = { input: 'shortconv.in_proj', taps: 'shortconv.conv', output: 'shortconv.out_proj' };
const deltaParts = {
  qkv: 'attn_qkv',
  z: 'attn_gate',
  b: 'ssm_beta',
  a: 'ssm_alpha',
  qkvz: 'ssm_in',
  ba: 'ssm_ba',
  taps: 'ssm_conv1d',
  norm: 'ssm_norm',
  output: 'ssm_out',
};

const nextParts = { norm: 'shared_head_norm', embeddingNorm: 'enorm', hiddenNorm: 'hnorm', project: 'eh_proj' };
const inputParts = { positions: 'position_embd', types: 'token_types', norm: 'token_embd_norm' };

/** Behind an encoder, by these names here too: of scores, and of vectors. */
const headParts = {
  cls: 'cls',
  clsNorm: 'cls.norm',
  clsOutput: 'cls.output',
  dense2: 'dense_2',
  dense3: 'dense_3',
};

const perLayerParts = {
  table: 'per_layer_token_embd',
  projection: 'per_layer_model_proj',
  norm: 'per_layer_proj_norm',
};
const perLayerHalfParts = { gate: 'inp_gate', project: 'proj', outNorm: 'post_norm' };
const besideParts = { mlpOutNorm: 'post_ffw_norm_1', norm: 'pre_ffw_norm_2', outNorm: 'post_ffw_norm_2' };

/** Of what a part has, the bounds of its activations among them. */
const SUFFIXES = ['weight', 'bias', ...BOUNDS];

type View = (entry: TensorEntry) => TensorEntry;

/** The tensors of a file, or of a block of it, as they are put into an index. */
export class Block {
  constructor(
    readonly gguf: GgufFile,
    readonly tensors: Map<string, TensorEntry>,
    readonly prefix = '',
  ) {}

  stored(name: string): GgufTensor | undefined {
    return this.gguf.tensors.get(this.prefix + name);
  }

  /** The tensor of factors that an NVFP4 tensor has beside it, if it has: one for all of it, or one for each expert. */
  factorsOf({ name, type }: GgufTensor): GgufTensor | undefined {
    return type === 'NVFP4' ? this.gguf.tensors.get(name.replace(/weight$/, 'scale')) : undefined;
  }

  /** A tensor under another name, where the file has it and the name is known; of a stack an expert's. */
  add(stored: GgufTensor | undefined, name: string | undefined, view: View = (entry) => entry, expert = 0): void {
    if (!stored || name === undefined) return;
    const entry = view({ ...entryOf(stored), name });
    const factors = this.factorsOf(stored);
    if (factors) expectShape(this.gguf, factors, [stored.shape.length > 2 ? stored.shape[0]! : 1]);
    if (factors && factors.type !== 'F32')
      throw formatError(`${this.gguf.what}: tensor '${factors.name}' is ${factors.typeName}; expected F32`);
    const scaled = factors ? scaledView(entry, factors.file, factors.start + 4 * expert) : entry;
    this.tensors.set(entry.name, scaled);
  }

  /** Those of the parts that the file has, weights and biases. */
  addParts<Part extends string>(
    parts: Readonly<Partial<Record<Part, string>>>,
    names: Readonly<Partial<Record<Part, string | undefined>>>,
    views?: Readonly<Partial<Record<Part, View>>>,
  ): void {
    for (const part of Object.keys(parts) as Part[]) {
      for (const suffix of SUFFIXES)
        this.add(this.stored(`${parts[part]}.${suffix}`), names[part] && `${names[part]}.${suffix}`, views?.[part]);
    }
  }
}

/**
 * The tensors of a GGUF file under the names and with the shapes and row orders of the Hugging Face checkpoint it was made from, so
 * that nothing else needs to know. What the model has no use for (rope factors, layers beyond its own) is left out.
 *
 * @throws SplitkvError `unsupported` for a tensor type that isn't read, `format` for shapes that don't fit the metadata
 */
export function ggufTensorIndex(gguf: GgufFile, { arch, family }: GgufArchitecture, config: ModelConfig): TensorIndex {
  const pairedRows = family.pairedRows?.includes(arch) ?? false;
  const tiledHeads = family.tiledHeads?.includes(arch) ?? false;
  const tensors = new Map<string, TensorEntry>();
  const { embedding, norm, head, inputs = {} } = config.tensors;
  const { parts = {} } = family;
  const called = (block: Block, part: keyof typeof parts, usual: string): string =>
    (block.stored(`${parts[part]}.weight`) ? parts[part] : undefined) ?? usual;
  const whole = new Block(gguf, tensors);
  const ends = { embedding: 'token_embd', norm: called(whole, 'norm', 'output_norm'), head: 'output' };
  whole.addParts<keyof typeof ends>(ends, { embedding, norm, head });
  whole.addParts<keyof typeof inputParts>(inputParts, inputs);
  whole.addParts(headParts, headParts);
  whole.addParts<keyof typeof perLayerParts>(perLayerParts, config.tensors.perLayer ?? {});
  const add = ({ attention, mlp }: LayerConfig, index: number, all: TensorNames): void => {
    const names = numbered(all, index);
    const block = new Block(gguf, tensors, `blk.${index}.`);
    const norms = {
      ...normParts,
      postNorm: called(block, 'postNorm', normParts.postNorm),
      attentionOutNorm: called(block, 'attentionOutNorm', normParts.attentionOutNorm),
      mlpOutNorm: called(block, 'mlpOutNorm', normParts.mlpOutNorm),
    };
    block.addParts<keyof typeof normParts>(norms, names);
    block.add(block.stored('layer_output_scale.weight'), names.layerScale);
    block.addParts<keyof typeof perLayerHalfParts>(perLayerHalfParts, names.perLayer ?? {});
    if (attention.kind === 'conv') block.addParts(convParts, namesOf(names, 'conv'), { taps: withAxis });
    else if (attention.kind === 'delta') addDelta(block, attention, namesOf(names, 'delta'), tiledHeads);
    else if (attention.kind === 'mamba') addMamba(block, namesOf(names, 'mamba'));
    else if (attention.kind === 'gqa') {
      const { heads, kvHeads } = attention;
      const own = namesOf(names, 'gqa');
      block.add(block.stored('attn_sinks.weight'), own.sinks);
      const views = { q: inHalves(attention, heads), k: inHalves(attention, kvHeads) };
      block.addParts<keyof typeof gqaParts>(gqaParts, own, pairedRows ? views : undefined);
    } else {
      const own = namesOf(names, 'mla');
      block.addParts(mlaParts, own);
      joinKeysAndValues(block, attention, `${own.kvUp}.weight`);
    }
    addMlp(block, mlp, names);
  };
  config.layers.forEach((layer, index) => add(layer, index, config.tensors));
  if (config.mtp) {
    const { layer, tensors: names } = config.mtp;
    const { length } = config.layers;
    add(layer, length, names);
    const own = { ...names.inputs, ...(names.norm !== undefined && { norm: names.norm }) };
    new Block(gguf, tensors, `blk.${length}.nextn.`).addParts<keyof typeof nextParts>(nextParts, own);
  }
  const totalBytes = sum([...tensors.values()].map(({ start, end }) => end - start));
  return { tensors, totalBytes, files: gguf.files };
}

/** Rows of each head from the neighbouring pairs that llama.cpp rotates to the checkpoint's halves. */
const inHalves =
  ({ headDim }: GqaConfig, heads: number): View =>
  (entry) =>
    // Another shape is refused where it is loaded.
    entry.shape[0] === heads * headDim ? orderedView(entry, pairsInHalves(headDim, 0, headDim)) : entry;

/** A convolution's taps with the axis that a checkpoint has between. */
const withAxis: View = (entry) =>
  entry.shape.length === 2 ? { ...entry, shape: entry.shape.toSpliced(1, 0, 1) } : entry;

/** What llama.cpp has as columns of one number, or by groups. */
const flat: View = (entry) => ({ ...entry, shape: [entry.shape.reduce((a, b) => a * b, 1)] });

function addMamba(block: Block, names: MambaNames): void {
  block.addParts({ input: 'ssm_in', taps: 'ssm_conv1d', norm: 'ssm_norm', output: 'ssm_out' }, names, {
    taps: withAxis,
    norm: flat,
  });
  block.add(block.stored('ssm_a'), names.rates, flat);
  block.add(block.stored('ssm_d'), names.skip, flat);
  block.add(block.stored('ssm_dt.bias'), names.dtBias);
}

function addDelta(
  block: Block,
  { keyHeads, valueHeads, keyDim, valueDim }: DeltaConfig,
  names: DeltaNames,
  tiled: boolean,
): void {
  const ratio = valueHeads / keyHeads;
  // Value head i of key head k is head k * ratio + i of the checkpoint, and i * keyHeads + k of a tiled file.
  const headInFile = (head: number): number => (head % ratio) * keyHeads + Math.floor(head / ratio);
  /** Where values of `width` elements a head lie in the file, behind `before` that aren't theirs. */
  const order = (width: number, before = 0): number[] => [
    ...range(0, before),
    ...range(0, valueHeads * width).map((i) => before + headInFile(Math.floor(i / width)) * width + (i % width)),
  ];
  const grouped = tiled && ratio > 1;
  const rows =
    (width: number, before = 0): View =>
    (entry) =>
      grouped && entry.shape[0] === before + valueHeads * width ? orderedView(entry, order(width, before)) : entry;
  const keys = 2 * keyHeads * keyDim;
  const views: Readonly<Partial<Record<keyof typeof deltaParts, View>>> = {
    qkv: rows(valueDim, keys),
    z: rows(valueDim),
    b: rows(1),
    a: rows(1),
    taps: (entry) => rows(valueDim, keys)(withAxis(entry)),
    output: (entry) =>
      grouped && entry.shape[1] === valueHeads * valueDim ? columnsView(entry, order(valueDim)) : entry,
  };
  block.addParts<keyof typeof deltaParts>(deltaParts, names, views);
  block.add(block.stored('ssm_a'), names.rates, rows(1));
  block.add(block.stored('ssm_dt.bias'), names.dtBias, rows(1));
}

function addMlp(block: Block, mlp: MlpConfig, names: TensorNames): void {
  if (mlp.kind !== 'experts') {
    if (mlp.kind === 'plain') return block.addParts({ up: 'ffn_up', down: 'ffn_down' }, namesOf(names, 'plain'));
    const gated = namesOf(names, 'gated');
    return block.addParts<keyof GatedMlpNames>(gated.gateUp === undefined ? gatedParts() : fusedParts, gated);
  }
  const experts = namesOf(names, 'experts');
  const { router, sharedGate, shared, correctionBias } = experts;
  block.addParts({ router: 'ffn_gate_inp' }, { router });
  block.addParts(gatedParts('_shexp'), shared);
  block.addParts({ gate: 'ffn_gate_inp_shexp' }, { gate: sharedGate }, { gate: asRow });
  block.add(block.stored('exp_probs_b.bias'), correctionBias);
  if (experts.beside) {
    const { beside } = experts;
    block.addParts(gatedParts(), beside.mlp);
    block.addParts<keyof typeof besideParts>(besideParts, beside);
    block.add(block.stored('ffn_gate_inp.scale'), beside.routerScale);
    // The model's own, of whatever type the experts are.
    block.add(block.stored('ffn_down_exps.scale'), beside.expertScale);
    refuseFactors(block, 'ffn_down_exps.weight');
  }
  for (const [name, parts] of Object.entries(stacks)) {
    for (const end of ['weight', 'bias']) {
      const stack = block.stored(`${name}.${end}`);
      if (stack) unstack(block, stack, mlp.numExperts, experts, parts);
    }
  }
}

/** Whose rows the stacks have of each expert: gate and up by themselves, or one behind the other. */
const stacks: Readonly<Record<string, readonly ('gate' | 'up' | 'down')[]>> = {
  ffn_gate_exps: ['gate'],
  ffn_up_exps: ['up'],
  ffn_gate_up_exps: ['gate', 'up'],
  ffn_down_exps: ['down'],
};

/** A vector as a matrix of one row. */
const asRow: View = (entry) => (entry.shape.length === 1 ? { ...entry, shape: [1, ...entry.shape] } : entry);

/** A stack's tensors of each expert: [experts, rows, columns], or of biases [experts, length]. */
function unstack(
  block: Block,
  stack: GgufTensor,
  count: number,
  names: ExpertNames,
  parts: readonly ('gate' | 'up' | 'down')[],
): void {
  const isBias = stack.name.endsWith('.bias');
  const { shape } = stack;
  if (shape.length !== (isBias ? 2 : 3) || shape[0] !== count) {
    throw formatError(
      `${block.gguf.what}: tensor '${stack.name}' has shape [${shape.join(', ')}]; expected [experts, ${isBias ? 'length' : 'rows, columns'}] for ${count} experts`,
    );
  }
  const length = nth(shape, 1) / parts.length;
  for (let expert = 0; expert < count; expert++) {
    for (const [index, part] of parts.entries()) {
      const name = `${names[part].replace('{expert}', `${expert}`)}.${isBias ? 'bias' : 'weight'}`;
      const first = (expert * parts.length + index) * length;
      const view: View = (entry) =>
        isBias ? vectorView(entry, name, { first, step: 1, length }) : rowsView(entry, name, first, length);
      block.add(stack, name, view, expert);
    }
  }
}

/** W_UK and W_UV of one tensor, where the file has it in halves only. */
function joinKeysAndValues(
  block: Block,
  { heads, kvLoraRank, qkNopeHeadDim, vHeadDim }: MlaConfig,
  name: string,
): void {
  const { gguf, tensors } = block;
  const keys = block.stored('attn_k_b.weight');
  const values = block.stored('attn_v_b.weight');
  if (tensors.has(name) || !keys || !values) return;
  for (const half of ['attn_k_b.weight', 'attn_v_b.weight']) refuseFactors(block, half);
  expectShape(gguf, keys, [heads, kvLoraRank, qkNopeHeadDim]);
  expectShape(gguf, values, [heads, vHeadDim, kvLoraRank]);
  tensors.set(name, absorbedView(name, entryOf(keys), entryOf(values)));
}

function refuseFactors(block: Block, name: string): void {
  const stored = block.stored(name);
  const factors = stored && block.factorsOf(stored);
  if (factors)
    throw unsupportedError(
      `${block.gguf.what}: '${factors.name}' is a factor of an NVFP4 tensor that can't have one here. Take a file in which it has ` +
        'another type, such as MXFP4 or Q8_0',
    );
}

function expectShape(gguf: GgufFile, { name, shape }: GgufTensor, expected: readonly number[]): void {
  if (shape.length === expected.length && shape.every((size, axis) => size === expected[axis])) return;
  throw formatError(
    `${gguf.what}: tensor '${name}' has shape [${shape.join(', ')}]; expected [${expected.join(', ')}] from its metadata`,
  );
}
