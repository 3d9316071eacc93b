import { formatError } from '../../base/errors.js';
import {
  absorbedView,
  columnsView,
  entryOf,
  type GgufFile,
  type GgufTensor,
  orderedView,
  rowsView,
  type TensorEntry,
  type TensorIndex,
  vectorView,
} from '../../loader/index.js';
import type { DeltaConfig, GqaConfig, LayerConfig, MlaConfig, ModelConfig } from '../config/model_config.js';
import type { GgufArchitecture } from './config.js';
import {
  type ConvNames,
  type DeltaNames,
  type ExpertNames,
  type GatedMlpNames,
  numbered,
  type TensorNames,
} from '../config/tensor_names.js';
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

/** Puts a tensor of the file into the index. */
type Add = (tensor: GgufTensor, name: string, view?: (entry: TensorEntry) => TensorEntry) => void;

/**
 * The tensors of a GGUF file under the names and with the shapes and row orders of the Hugging Face checkpoint it was made from, so
 * that nothing else needs to know. What the model has no use for (rope factors, layers beyond its own) is left out.
 *
 * @throws SplitkvError `unsupported` for a tensor type that isn't read, `format` for shapes that don't fit the metadata
 */
export function ggufTensorIndex(gguf: GgufFile, { arch, family }: GgufArchitecture, config: ModelConfig): TensorIndex {
  const pairedRows = family.pairedRows?.includes(arch) ?? false;
  const tensors = new Map<string, TensorEntry>();
  const add: Add = (tensor, name, view = (entry) => entry) => {
    const entry = view({ ...entryOf(tensor), name });
    tensors.set(entry.name, entry);
  };
  const { embedding, norm, head } = config.tensors;
  const { parts = {} } = family;
  const called = (part: 'norm' | 'postNorm', usual: string, before = ''): string =>
    gguf.tensors.has(`${before}${parts[part]}.weight`) ? parts[part]! : usual;
  const ends = { embedding: 'token_embd', norm: called('norm', 'output_norm'), head: 'output' };
  addParts(gguf, add, '', ends, { embedding, norm, head });
  config.layers.forEach((layer, index) => {
    const names = numbered(config.tensors, index);
    const block = `blk.${index}.`;
    const norms = { ...normParts, postNorm: called('postNorm', normParts.postNorm, block) };
    addParts<keyof typeof normParts>(gguf, add, block, norms, names);
    if (layer.attention.kind === 'conv') addConv(gguf, add, block, names.conv!);
    if (layer.attention.kind === 'delta')
      addDelta(gguf, add, block, layer.attention, names.delta!, family.tiledHeads?.includes(arch) ?? false);
    addAttention(gguf, add, block, layer, names, pairedRows);
    addMlp(gguf, add, block, layer, names);
    if (layer.attention.kind === 'mla') joinKeysAndValues(gguf, layer.attention, block, names, tensors);
  });
  const totalBytes = [...tensors.values()].reduce((sum, { start, end }) => sum + end - start, 0);
  return { tensors, totalBytes, files: gguf.files };
}

/** Those of the parts that the file has, weights and biases. */
function addParts<Part extends string>(
  gguf: GgufFile,
  add: Add,
  block: string,
  parts: Readonly<Partial<Record<Part, string>>>,
  names: Readonly<Partial<Record<Part, string | undefined>>>,
  view?: (part: Part) => ((entry: TensorEntry) => TensorEntry) | undefined,
): void {
  for (const part of Object.keys(parts) as Part[]) {
    for (const suffix of ['weight', 'bias']) {
      const tensor = gguf.tensors.get(`${block}${parts[part]}.${suffix}`);
      const name = names[part];
      if (tensor && name !== undefined) add(tensor, `${name}.${suffix}`, view?.(part));
    }
  }
}

function addAttention(
  gguf: GgufFile,
  add: Add,
  block: string,
  { attention }: LayerConfig,
  { gqa, mla }: TensorNames,
  pairedRows: boolean,
): void {
  if (attention.kind === 'mla') addParts(gguf, add, block, mlaParts, mla!);
  if (attention.kind !== 'gqa') return;
  const { heads, kvHeads } = attention;
  const sinks = gguf.tensors.get(`${block}attn_sinks.weight`);
  if (sinks && gqa!.sinks !== undefined) add(sinks, gqa!.sinks);
  addParts(gguf, add, block, gqaParts, gqa!, (part) =>
    pairedRows && (part === 'q' || part === 'k') ? inHalves(attention, part === 'q' ? heads : kvHeads) : undefined,
  );
}

/** Rows of each head from the neighbouring pairs that llama.cpp rotates to the checkpoint's halves. */
const inHalves =
  ({ headDim }: GqaConfig, heads: number) =>
  (entry: TensorEntry): TensorEntry =>
    // Another shape is refused where it is loaded.
    entry.shape[0] === heads * headDim ? orderedView(entry, pairsInHalves(headDim, 0, headDim)) : entry;

/** A convolution's taps with the axis that a checkpoint has between. */
const withAxis = (entry: TensorEntry): TensorEntry =>
  entry.shape.length === 2 ? { ...entry, shape: [entry.shape[0]!, 1, entry.shape[1]!] } : entry;

function addConv(gguf: GgufFile, add: Add, block: string, names: ConvNames): void {
  const parts = { input: 'shortconv.in_proj', taps: 'shortconv.conv', output: 'shortconv.out_proj' };
  addParts<keyof ConvNames>(gguf, add, block, parts, names, (part) => (part === 'taps' ? withAxis : undefined));
}

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

function addDelta(
  gguf: GgufFile,
  add: Add,
  block: string,
  { keyHeads, valueHeads, keyDim, valueDim }: DeltaConfig,
  names: DeltaNames,
  tiled: boolean,
): void {
  const ratio = valueHeads / keyHeads;
  // Value head i of key head k is head k * ratio + i of the checkpoint, and i * keyHeads + k of a tiled file.
  const headInFile = (head: number): number => (head % ratio) * keyHeads + Math.floor(head / ratio);
  /** Where values of `width` elements a head lie in the file, behind `before` that aren't theirs. */
  const order = (width: number, before = 0): number[] => [
    ...Array.from({ length: before }, (_, i) => i),
    ...Array.from(
      { length: valueHeads * width },
      (_, i) => before + headInFile(Math.floor(i / width)) * width + (i % width),
    ),
  ];
  const grouped = tiled && ratio > 1;
  const rows =
    (width: number, before = 0) =>
    (entry: TensorEntry): TensorEntry =>
      grouped && entry.shape[0] === before + valueHeads * width ? orderedView(entry, order(width, before)) : entry;
  const keys = 2 * keyHeads * keyDim;
  const views: Readonly<Record<string, (entry: TensorEntry) => TensorEntry>> = {
    qkv: rows(valueDim, keys),
    z: rows(valueDim),
    b: rows(1),
    a: rows(1),
    taps: (entry) => rows(valueDim, keys)(withAxis(entry)),
    output: (entry) =>
      grouped && entry.shape[1] === valueHeads * valueDim ? columnsView(entry, order(valueDim)) : entry,
  };
  addParts<keyof typeof deltaParts>(gguf, add, block, deltaParts, names, (part) => views[part]);
  for (const [part, name] of [
    ['ssm_a', names.rates],
    ['ssm_dt.bias', names.dtBias],
  ] as const) {
    const tensor = gguf.tensors.get(`${block}${part}`);
    if (tensor) add(tensor, name, rows(1));
  }
}

function addMlp(gguf: GgufFile, add: Add, block: string, { mlp }: LayerConfig, names: TensorNames): void {
  if (mlp.kind === 'plain') return addParts(gguf, add, block, { up: 'ffn_up', down: 'ffn_down' }, names.plain!);
  if (mlp.kind === 'gated') {
    addParts<keyof GatedMlpNames>(
      gguf,
      add,
      block,
      names.gated!.gateUp === undefined ? gatedParts() : fusedParts,
      names.gated!,
    );
    return;
  }
  const experts = names.experts!;
  addParts(gguf, add, block, { router: 'ffn_gate_inp' }, { router: experts.router });
  addParts(gguf, add, block, gatedParts('_shexp'), experts.shared);
  addParts(gguf, add, block, { gate: 'ffn_gate_inp_shexp' }, { gate: experts.sharedGate }, () => asRow);
  const bias = gguf.tensors.get(`${block}exp_probs_b.bias`);
  if (bias) add(bias, experts.correctionBias);
  for (const [name, parts] of Object.entries(stacks)) {
    for (const end of ['weight', 'bias']) {
      const stack = gguf.tensors.get(`${block}${name}.${end}`);
      if (stack) unstack(gguf, add, stack, mlp.numExperts, experts, parts);
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
const asRow = (entry: TensorEntry): TensorEntry =>
  entry.shape.length === 1 ? { ...entry, shape: [1, ...entry.shape] } : entry;

/** A stack's tensors of each expert: [experts, rows, columns], or of biases [experts, length]. */
function unstack(
  gguf: GgufFile,
  add: Add,
  stack: GgufTensor,
  count: number,
  names: ExpertNames,
  parts: readonly ('gate' | 'up' | 'down')[],
): void {
  const isBias = stack.name.endsWith('.bias');
  const { shape } = stack;
  if (shape.length !== (isBias ? 2 : 3) || shape[0] !== count) {
    throw formatError(
      `${gguf.what}: tensor '${stack.name}' has shape [${shape.join(', ')}]; expected [experts, ${isBias ? 'length' : 'rows, columns'}] for ${count} experts`,
    );
  }
  const length = shape[1]! / parts.length;
  for (let expert = 0; expert < count; expert++) {
    for (const [index, part] of parts.entries()) {
      const name = `${names[part].replace('{expert}', `${expert}`)}.${isBias ? 'bias' : 'weight'}`;
      const first = (expert * parts.length + index) * length;
      add(stack, name, (entry) =>
        isBias ? vectorView(entry, name, { first, step: 1, length }) : rowsView(entry, name, first, length),
      );
    }
  }
}

/** W_UK and W_UV of one tensor, where the file has it in halves only. */
function joinKeysAndValues(
  gguf: GgufFile,
  { heads, kvLoraRank, qkNopeHeadDim, vHeadDim }: MlaConfig,
  block: string,
  { mla }: TensorNames,
  tensors: Map<string, TensorEntry>,
): void {
  const name = `${mla!.kvUp}.weight`;
  const keys = gguf.tensors.get(`${block}attn_k_b.weight`);
  const values = gguf.tensors.get(`${block}attn_v_b.weight`);
  if (tensors.has(name) || !keys || !values) return;
  expectShape(gguf, keys, [heads, kvLoraRank, qkNopeHeadDim]);
  expectShape(gguf, values, [heads, vHeadDim, kvLoraRank]);
  tensors.set(name, absorbedView(name, entryOf(keys), entryOf(values)));
}

function expectShape(gguf: GgufFile, { name, shape }: GgufTensor, expected: readonly number[]): void {
  if (shape.length === expected.length && shape.every((size, axis) => size === expected[axis])) return;
  throw formatError(
    `${gguf.what}: tensor '${name}' has shape [${shape.join(', ')}]; expected [${expected.join(', ')}] from its metadata`,
  );
}
