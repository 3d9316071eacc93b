import { rowsView, type TensorEntry, type TensorIndex } from '../../loader/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { numbered } from '../config/tensor_names.js';
import { unstackAlternating } from './alternating_experts.js';

/** What a checkpoint of text and images puts before the names of its language model's tensors, and what stands there without. */
const WRAPPED = [
  ['language_model.', ''],
  ['model.language_model.', 'model.'],
  ['lm_head.', 'lm_head.'],
] as const;

/**
 * The tensors under the names of the model's family: of the language model alone, where there are images too, and of each expert by
 * itself, where they are stacked: `experts.gate_up_proj` [experts, 2 width, hidden] (gate first) and `experts.down_proj`.
 */
export function asNamed(index: TensorIndex, config: ModelConfig): TensorIndex {
  const tensors = new Map<string, TensorEntry>();
  const wrapped = !index.tensors.has(`${config.tensors.embedding}.weight`);
  for (const [stored, entry] of index.tensors) {
    const prefix = wrapped ? WRAPPED.find(([before]) => stored.startsWith(before)) : (['', ''] as const);
    const name = prefix && prefix[1] + stored.slice(prefix[0].length);
    if (name !== undefined) tensors.set(name, { ...entry, name });
  }
  for (const [layer, { mlp }] of config.layers.entries()) {
    const names = numbered(config.tensors, layer).experts;
    if (mlp.kind !== 'experts' || !names) continue;
    if (names.alternating) {
      unstackAlternating(tensors, names, mlp, config.hiddenSize);
      continue;
    }
    const stack = (name: string): TensorEntry | undefined =>
      tensors.get(names.gate.replace('{expert}.gate_proj', name));
    const both = stack('gate_up_proj');
    const down = stack('down_proj');
    for (let expert = 0; expert < mlp.numExperts; expert++) {
      const own = numbered(names, layer, expert);
      const add = (part: string, entry: TensorEntry | undefined, first: number, rows: number): void => {
        const name = `${part}.weight`;
        if (entry) tensors.set(name, rowsView(entry, name, first, rows));
      };
      const { width } = mlp;
      add(own.gate, both, 2 * expert * width, width);
      add(own.up, both, (2 * expert + 1) * width, width);
      add(own.down, down, expert * config.hiddenSize, config.hiddenSize);
    }
    for (const name of ['gate_up_proj', 'down_proj']) tensors.delete(names.gate.replace('{expert}.gate_proj', name));
  }
  const totalBytes = [...tensors.values()].reduce((sum, { start, end }) => sum + end - start, 0);
  return { ...index, tensors, totalBytes };
}
