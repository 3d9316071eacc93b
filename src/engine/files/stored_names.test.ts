import { describe, expect, test } from 'vitest';
import { openModelFiles } from './model_files.js';
import { openSource } from '../../loader/index.js';
import { writeSafetensors } from '../../loader/testing/write_safetensors.js';
import { makeRandomModel, type RandomModel } from '../../model/testing/random_model.js';

const gemma = makeRandomModel({ config: { model_type: 'gemma3_text', num_hidden_layers: 1, hidden_act: undefined } });
const experts = { num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 24 };
const mixtures = {
  qwen3_moe: makeRandomModel({ config: { model_type: 'qwen3_moe', ...experts } }),
  // Stacks are stored input by input.
  qwen3_vl_moe: makeRandomModel({ config: { model_type: 'qwen3_vl_moe_text', ...experts } }),
  // With shared experts beside the stacks.
  qwen3_5_moe: makeRandomModel({
    config: {
      model_type: 'qwen3_5_moe_text',
      layer_types: ['full_attention', 'linear_attention'],
      head_dim: 32,
      linear_num_key_heads: 2,
      linear_num_value_heads: 4,
      shared_expert_intermediate_size: 40,
      mtp_num_hidden_layers: 1,
      ...experts,
    },
  }),
  // Beside an MLP, in a folder of their own.
  gemma4: makeRandomModel({
    config: {
      model_type: 'gemma4_text',
      layer_types: ['sliding_attention', 'full_attention'],
      head_dim: 16,
      global_head_dim: 32,
      sliding_window: 8,
      rope_theta: undefined,
      hidden_act: undefined,
      tie_word_embeddings: undefined,
      hidden_size_per_layer_input: 0,
      enable_moe_block: true,
      num_experts: 4,
      top_k_experts: 2,
      moe_intermediate_size: 24,
    },
  }),
};

const tensor = (name: string, shape: readonly number[], data: Float32Array) => {
  return { name, dtype: 'F32' as const, shape: [...shape], data: new Uint8Array(data.slice().buffer) };
};

/** What is read of a folder with these tensors, by name. */
async function readAll(config: unknown, tensors: ReturnType<typeof tensor>[]) {
  const files = [
    new File([JSON.stringify(config)], 'config.json'),
    new File([writeSafetensors(tensors, { format: 'pt' })], 'model.safetensors'),
  ];
  const opened = await openModelFiles(await openSource(files));
  const reader = await opened.reader();
  const values = new Map<string, number[]>();
  for (const name of reader.index.tensors.keys()) values.set(name, [...(await reader.readVector(name))]);
  return { config: opened.config, values };
}

const rawOf = ({ files }: RandomModel): Record<string, unknown> =>
  JSON.parse(new TextDecoder().decode(files.get('config.json')!)) as Record<string, unknown>;

const expected = ({ weights }: RandomModel): Map<string, number[]> =>
  new Map([...weights].map(([name, { data }]) => [name, [...data]]));

describe('checkpoints that call their tensors otherwise', () => {
  test.each([
    ['language_model.', (name: string) => `language_model.${name}`],
    ['model.language_model.', (name: string) => name.replace(/^model\./, 'model.language_model.')],
  ])('the text part of a model of text and images: %s', async (_prefix, rename) => {
    const { architectures: _, ...text } = rawOf(gemma);
    const wrapped = {
      model_type: 'gemma3',
      architectures: ['Gemma3ForConditionalGeneration'],
      text_config: { ...text, eos_token_id: undefined },
      vision_config: { hidden_size: 8 },
      eos_token_id: [1, 106],
    };
    const tensors = [...gemma.weights].map(([name, { shape, data }]) => tensor(rename(name), shape, data));
    tensors.push(tensor('vision_tower.patch.weight', [2, 3], new Float32Array(6)));
    const { config, values } = await readAll(wrapped, tensors);
    expect(values).toEqual(expected(gemma));
    expect(config).toMatchObject({ architecture: 'gemma3_text', eosTokenIds: [1, 106] });
    expect(config.layers).toEqual(gemma.config.layers);
  });

  test('a model of text and images without its text part', async () => {
    const config = { model_type: 'gemma3', architectures: ['Gemma3ForConditionalGeneration'] };
    await expect(readAll(config, [])).rejects.toThrow("the key 'text_config' is missing");
  });

  test.each(Object.entries(mixtures))('experts in stacks: %s', async (kind, moe) => {
    const byInput = kind === 'qwen3_vl_moe';
    const rest = [...moe.weights].filter(([name]) => !/experts\.\d/.test(name));
    const tensors = rest.map(([name, { shape, data }]) => tensor(name, shape, data));
    const layers = [...moe.config.layers.keys()].map((layer) => `model.layers.${layer}`);
    for (const layer of [...layers, ...(moe.config.mtp ? ['mtp.layers.0'] : [])]) {
      const at = `${layer}.${moe === mixtures.gemma4 ? '' : 'mlp.'}experts`;
      const stack = (parts: readonly string[], [, rows, columns]: readonly [4, number, number], name: string): void => {
        const all = Array.from({ length: 4 }, (_, expert) => {
          const one = parts.flatMap((part) => [...moe.weights.get(`${at}.${expert}.${part}.weight`)!.data]);
          return byInput ? one.map((_value, i) => one[(i % rows) * columns + Math.floor(i / rows)]!) : one;
        });
        const shape = byInput ? [4, columns, rows] : [4, rows, columns];
        tensors.push(tensor(`${at}.${name}`, shape, Float32Array.from(all.flat())));
      };
      stack(['gate_proj', 'up_proj'], [4, 48, 64], 'gate_up_proj');
      stack(['down_proj'], [4, 64, 24], 'down_proj');
    }
    const { values } = await readAll(rawOf(moe), tensors);
    expect(values).toEqual(expected(moe));
    if (!moe.config.mtp) return;
    // The layer for further tokens stands beside the text part.
    const wrapped = { ...rawOf(moe), model_type: 'qwen3_5_moe', text_config: rawOf(moe) };
    const moved = tensors.map((each) => ({ ...each, name: each.name.replace(/^model\./, 'model.language_model.') }));
    expect((await readAll(wrapped, moved)).values).toEqual(expected(moe));
  });
});
