import { range } from '../../base/lists.js';
import {
  blocksView,
  columnsView,
  matrixShape,
  orderedView,
  rowsView,
  summedView,
  type TensorEntry,
  type TensorIndex,
  transposedView,
  vectorView,
} from '../../loader/index.js';
import { type ExpertsConfig, headModel, type ModelConfig } from '../config/model_config.js';
import type { VisionConfig } from '../config/vision_config.js';
import { type ExpertNames, numbered } from '../config/tensor_names.js';

/** What a checkpoint puts before the names of a model's tensors (images beside the text, another head), and what stands there without. */
export const WRAPPED = [
  ['language_model.', ''],
  ['model.language_model.', 'model.'],
  ['model.text_model.', 'model.'],
  ['lm_head.', 'lm_head.'],
  ['mtp.', 'mtp.'],
  ['bert.', ''],
  ['roberta.', ''],
  ['classifier.', 'classifier.'],
] as const;

/**
 * The tensors under the names of the model's family: of the language model alone, where there are images too, and of each expert by
 * itself, where they are stacked: `experts.gate_up_proj` [experts, 2 width, hidden] (gate first) and `experts.down_proj`.
 */
export function asNamed(index: TensorIndex, config: ModelConfig): TensorIndex {
  const tensors = new Map<string, TensorEntry>();
  const { embedding } = config.tensors;
  // A model without its head is named without what it is beside one.
  const bare = index.tensors.has(`${embedding.replace(/^model\./, '')}.weight`) ? (['', 'model.'] as const) : undefined;
  const wrapped = !index.tensors.has(`${embedding}.weight`);
  for (const [stored, entry] of index.tensors) {
    const prefix = wrapped ? (bare ?? WRAPPED.find(([before]) => stored.startsWith(before))) : (['', ''] as const);
    const name = prefix && prefix[1] + stored.slice(prefix[0].length);
    if (name !== undefined) tensors.set(name, { ...entry, name });
  }
  // Embedding models are saved without their head, which nothing then asks.
  const head = `${config.tensors.head}.weight`;
  const table = tensors.get(`${embedding}.weight`);
  if (bare && table && !config.tieWordEmbeddings && !tensors.has(head)) tensors.set(head, { ...table, name: head });
  const totalBytes = [...tensors.values()].reduce((sum, { start, end }) => sum + end - start, 0);
  if (config.vision) addVision(tensors, index, config.vision);
  if (config.sound) addSound(tensors, index);
  for (const { layers, tensors: all } of [config, headModel(config)].filter((model) => model !== undefined)) {
    for (const [layer, { mlp }] of layers.entries()) {
      const names = numbered(all, layer).experts;
      if (mlp.kind !== 'experts' || !names) continue;
      unstack(tensors, names, mlp, config.hiddenSize);
    }
  }
  return { ...index, tensors, totalBytes };
}

/** What checkpoints put before the names of an encoder's tensors. */
const TOWER =
  /^(model\.)?(vision_tower\.|visual\.|vision_embedder\.|embed_vision\.)?(vision_model\.|multimodal_embedder\.)?/;
/** Input by input, unlike other matrices. */
const BY_INPUT = 'multi_modal_projector.mm_input_projection_weight';
/** [places, 2, hidden], unlike other tables of two axes. */
const PAIRED = 'pos_embedding';
/** What those outside its layers are called, or begin with. */
const VISION = [
  ['embeddings.patch_embedding.', 'vision.patches.'],
  ['embeddings.position_embedding.', 'vision.positions.'],
  ['encoder.', 'vision.encoder.'],
  ['post_layernorm.', 'vision.post_layernorm.'],
  ['patch_embed.proj.', 'vision.patches.'],
  ['pos_embed.', 'vision.positions.'],
  ['blocks.', 'vision.encoder.layers.'],
  ['merger.norm.', 'vision.post_layernorm.'],
  ['merger.ln_q.', 'vision.post_layernorm.'],
  ['merger.mlp.0.', 'vision.merger.fc1.'],
  ['merger.mlp.2.', 'vision.merger.fc2.'],
  ['merger.', 'vision.merger.'],
  ['deepstack_merger_list.', 'vision.deepstack.'],
  ['patch_embedder.input_proj.', 'vision.patches.'],
  ['patch_embedder.position_embedding_table', 'vision.positions.weight'],
  ['std_', 'vision.std_'],
  ['connector.modality_projection.proj.weight', 'vision.project.weight'],
  [BY_INPUT, 'vision.project.weight'],
  ['multi_modal_projector.mm_soft_emb_norm.', 'vision.average_norm.'],
  ['multi_modal_projector.layer_norm.', 'vision.merger.norm.'],
  ['multi_modal_projector.linear_1.', 'vision.merger.fc1.'],
  ['multi_modal_projector.linear_2.', 'vision.merger.fc2.'],
  ['embedding_projection.', 'vision.project.'],
  ['patch_ln1.', 'vision.patch_norm.1.'],
  ['patch_dense.', 'vision.patches.'],
  ['patch_ln2.', 'vision.patch_norm.2.'],
  [PAIRED, 'vision.positions.weight'],
  ['pos_norm.', 'vision.patch_norm.3.'],
] as const;
/** Within a name. */
const PARTS = [
  ['.norm1.', '.layer_norm1.'],
  ['.norm2.', '.layer_norm2.'],
  ['.attn.qkv.', '.self_attn.qkv.'],
  ['.attn.proj.', '.self_attn.out_proj.'],
  ['.linear_fc', '.fc'],
  ['.linear.weight', '.weight'],
  ['.o_proj.', '.out_proj.'],
  ['.input_layernorm.', '.layer_norm1.'],
  ['.pre_feedforward_layernorm.', '.layer_norm2.'],
  ['.up_proj.', '.fc1.'],
  ['.down_proj.', '.fc2.'],
] as const;

/** An encoder's tensors under the names of config/vision_config.ts. */
function addVision(tensors: Map<string, TensorEntry>, index: TensorIndex, { tower, patch }: VisionConfig): void {
  for (const [stored, entry] of index.tensors) {
    const bare = stored.replace(TOWER, '');
    const [from, to] = VISION.find(([part]) => bare.startsWith(part)) ?? [];
    if (from === undefined) continue;
    const name = PARTS.reduce((whole, [part, own]) => whole.replace(part, own), to + bare.slice(from.length));
    const named = { ...entry, name };
    if (!tower.tensors.gqa?.qkv && name.includes('.qkv.')) addApart(tensors, named);
    else if (name === 'vision.patches.weight') tensors.set(name, patchRows(named, tower.hiddenSize, patch));
    else if (name.startsWith('vision.patch_norm.1.')) tensors.set(name, orderedView(named, channelsFirst(patch)));
    else if (from === PAIRED) tensors.set(name, byAxis(named));
    else if (from === BY_INPUT) tensors.set(name, transposedView(named, { first: 0, step: 1 }));
    // A number by itself is a vector of one.
    else tensors.set(name, entry.shape.length === 0 ? { ...named, shape: [1] } : named);
  }
}

/** q, k and v by themselves, where they are one tensor. */
function addApart(tensors: Map<string, TensorEntry>, entry: TensorEntry): void {
  const [all = 0, ...rest] = entry.shape;
  for (const [at, part] of ['q_proj', 'k_proj', 'v_proj'].entries()) {
    const name = entry.name.replace('qkv', part);
    tensors.set(name, { ...rowsView(entry, name, (at * all) / 3, all / 3), shape: [all / 3, ...rest] });
  }
}

/** An encoder of sound's under `sound.`, where kernels are vectors, and numbers by themselves vectors of one. */
function addSound(tensors: Map<string, TensorEntry>, index: TensorIndex): void {
  for (const [stored, entry] of index.tensors) {
    const [, isTower, bare] = /^(?:model\.)?(?:(audio_tower\.)|embed_audio\.embedding_)(.*)$/.exec(stored) ?? [];
    if (bare === undefined) continue;
    const own = bare.replace('.linear.weight', '.weight').replace(/(per_dim_scale)$/, '$1.weight');
    const name = isTower ? `sound.${own}` : `sound.${own.replace('projection', 'project')}`;
    tensors.set(name, asVector({ ...entry, name }));
  }
}

/** What is no matrix. */
export const asVector = (entry: TensorEntry): TensorEntry =>
  entry.shape.length === 2 ? entry : { ...entry, shape: [entry.shape.reduce((a, b) => a * b, 1)] };

/** Kernels [rows, 3, patch, patch], or of several frames, which are the same of a picture; or rows whose pixels have their channels side by side. */
function patchRows(entry: TensorEntry, rows: number, patch: number): TensorEntry {
  const size = patch * patch;
  const { length: axes, 2: frames = 1 } = entry.shape;
  if (axes === 4) return { ...entry, shape: [rows, 3 * size] };
  if (axes === 5) return summedView({ ...entry, shape: [rows, 3 * frames * size] }, frames, size);
  return columnsView(entry, channelsFirst(patch));
}

/** Of a patch's numbers, whose pixels have their channels side by side. */
function channelsFirst(patch: number): number[] {
  const size = patch * patch;
  return range(0, 3 * size).map((at) => (at % size) * 3 + Math.floor(at / size));
}

/** The first axis' places, then the second one's. */
function byAxis(entry: TensorEntry): TensorEntry {
  const [places = 0, axes = 0, ...rest] = entry.shape;
  const order = range(0, places * axes).map((at) => (at % places) * axes + Math.floor(at / places));
  return { ...orderedView(entry, order), shape: [axes, places, ...rest] };
}

/**
 * A layer's stacks of experts as tensors of each expert, in place of the stacks, whatever `names` calls those.
 *
 *   experts.gate_up_proj [experts, 2 width, hidden] and experts.down_proj [experts, hidden, width], gate first
 *   or input by input, as Qwen3-VL's makers published them: [experts, hidden, 2 width] and [experts, width, hidden]
 *
 * Where they alternate (gpt-oss), gate i is row 2i, up i row 2i + 1:
 *
 *   experts.gate_up_proj [experts, hidden, 2 width], experts.down_proj [experts, width, hidden]: input by input
 *   or, in MXFP4, `_blocks` [experts, rows, columns / 32, 16] and `_scales` [experts, rows, columns / 32]: output by output
 *   experts.gate_up_proj_bias [experts, 2 width], experts.down_proj_bias [experts, hidden]
 *
 * @param names of the layer, with {expert} for an expert's number
 */
function unstack(
  tensors: Map<string, TensorEntry>,
  names: ExpertNames,
  { numExperts, width }: ExpertsConfig,
  hiddenSize: number,
): void {
  for (const [stack, parts, rows, columns] of [
    ['gate_up_proj', ['gate', 'up'], 2 * width, hiddenSize],
    ['down_proj', ['down'], hiddenSize, width],
  ] as const) {
    const step = parts.length;
    const length = rows / step;
    const stored = ['', '_blocks', '_scales', '_bias'].map((end) =>
      names.gate.replace('{expert}.gate_proj', `${stack}${end}`),
    );
    if (names.stacks) stored[0] = names.stacks[step === 2 ? 'gateUp' : 'down'];
    const [plain, blocks, scales, bias] = stored.map((name) => tensors.get(name));
    for (let expert = 0; expert < numExperts; expert++) {
      for (const [index, part] of parts.entries()) {
        const name = names[part].replace('{expert}', `${expert}`);
        const put = (end: string, view: (name: string) => TensorEntry): void => {
          tensors.set(`${name}.${end}`, view(`${name}.${end}`));
        };
        const first = expert * rows + index;
        if (!names.alternating) {
          const byInput = plain && rows !== columns && fits(plain, numExperts * columns, rows);
          const every = { first: index * length, step: 1, length };
          if (byInput) put('weight', (own) => transposedView(rowsView(plain, own, expert * columns, columns), every));
          else if (plain) put('weight', (own) => rowsView(plain, own, expert * rows + index * length, length));
          continue;
        }
        if (plain && fits(plain, numExperts * columns, rows))
          put('weight', (own) =>
            transposedView(rowsView(plain, own, expert * columns, columns), { first: index, step }),
          );
        if (blocks && scales && fits(scales, numExperts * rows, columns / 32))
          put('weight', (own) => blocksView(own, blocks, scales, { first, step, rows: length }));
        if (bias && fits(bias, numExperts, rows)) put('bias', (own) => vectorView(bias, own, { first, step, length }));
      }
    }
    for (const name of names.alternating ? stored : stored.slice(0, 1)) tensors.delete(name);
  }
}

/** Others are refused by what they lack. */
function fits(entry: TensorEntry, rows: number, columns: number): boolean {
  const shape = matrixShape(entry);
  return shape.rows === rows && shape.columns === columns;
}
