import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import { parsePythonJson } from '../../base/json.js';
import { makePlan, planMemory } from '../../placement/index.js';
import { attendsBothWays, type GqaConfig } from '../config/model_config.js';
import { modelSizes } from '../model_sizes.js';
import { modelShape } from '../shape.js';
import { OTHERS, PUBLISHED } from '../testing/published_configs.js';
import { weightBytes } from '../weights/model_map.js';
import { loadFamilies, parseModelConfig, readModelConfig, supportedGguf, supportedModelTypes } from './registry.js';

const hybrid = PUBLISHED['granite-4.0-h-1b']!.config;
const tiny = {
  ...hybrid,
  intermediate_size: 512,
  shared_intermediate_size: 1024,
  num_local_experts: 64,
  num_experts_per_tok: 6,
};

/** What the keys that matter here say, and the number of parameters that their cards tell, in millions. */
const models: Record<
  string,
  { config: Readonly<Record<string, unknown>>; millions: number; windows: (number | undefined)[] }
> = {
  'Gemma 3 270M': {
    config: PUBLISHED['gemma-3-270m-it']!.config,
    millions: 268.1,
    windows: [512, 512, 512, 512, 512, undefined],
  },
  'Gemma 3 1B': {
    config: PUBLISHED['gemma-3-1b-it']!.config,
    millions: 999.9,
    windows: [512, 512, 512, 512, 512, undefined],
  },
  'Gemma 3 4B': {
    config: {
      architectures: ['Gemma3ForConditionalGeneration'],
      model_type: 'gemma3',
      eos_token_id: [1, 106],
      text_config: {
        hidden_size: 2560,
        intermediate_size: 10240,
        model_type: 'gemma3_text',
        num_hidden_layers: 34,
        rope_scaling: { factor: 8.0, rope_type: 'linear' },
        sliding_window: 1024,
      },
      vision_config: { hidden_size: 1152 },
    },
    millions: 3880.3,
    windows: [1024, 1024, 1024, 1024, 1024, undefined],
  },
  'Gemma 2 2B': {
    config: PUBLISHED['gemma-2-2b-it']!.config,
    millions: 2614.3,
    windows: [4096, undefined],
  },
  'SmolLM3 3B': { config: PUBLISHED['smollm3-3b']!.config, millions: 3075.1, windows: [undefined] },
  'Granite 4 350M': { config: PUBLISHED['granite-4.0-350m']!.config, millions: 352.4, windows: [undefined] },
  'Granite 4 1B': { config: PUBLISHED['granite-4.0-1b']!.config, millions: 1631.8, windows: [undefined] },
  'Granite 3.3 2B': { config: PUBLISHED['granite-3.3-2b-instruct']!.config, millions: 2533.5, windows: [undefined] },
  'Ministral 3 3B': {
    config: PUBLISHED['ministral-3-3b-instruct']!.config,
    millions: 3429,
    windows: [undefined],
  },
  'Phi-4-mini': { config: PUBLISHED['phi-4-mini-instruct']!.config, millions: 3836, windows: [262144] },
  'Qwen3 30B A3B': {
    config: OTHERS['qwen3-30b-a3b']!,
    millions: 30532.1,
    windows: [undefined],
  },
  'Gemma 4 E2B': {
    config: PUBLISHED['gemma-4-e2b-it']!.config,
    millions: 2279.8,
    windows: [512, 512, 512, 512, undefined],
  },
  'gpt-oss 20B': {
    config: PUBLISHED['gpt-oss-20b']!.config,
    millions: 20914.8,
    windows: [128, undefined],
  },
};

const gemma4 = {
  model_type: 'gemma4_text',
  attention_k_eq_v: true,
  hidden_size_per_layer_input: 0,
  num_attention_heads: 16,
  num_global_key_value_heads: 2,
  num_key_value_heads: 8,
};
const gemma4Experts = { enable_moe_block: true, moe_intermediate_size: 704, num_experts: 128, top_k_experts: 8 };

const page = readFileSync('docs/models.md', 'utf8').replaceAll(/ +/g, ' ');

const encoder = { model_type: 'bert', architectures: ['BertModel'], num_attention_heads: 12 };

describe('published shapes', () => {
  beforeAll(loadFamilies);

  test.each(Object.keys(models))('%s: parsed, counted, planned', (name) => {
    const { config: raw, millions, windows } = models[name]!;
    const config = parseModelConfig(raw);
    expect(weightBytes(config, 'q4').parameters / 1e6).toBeCloseTo(millions, 0);
    const found = config.layers.map(({ attention }) => (attention as GqaConfig).window);
    expect(found).toEqual(found.map((_, layer) => windows[layer % windows.length]));
    const shape = modelShape(config);
    // A window that the context doesn't reach is none.
    expect(shape.windowed ?? false).toBe(/^Gemma|^gpt-oss/.test(name));
    expect(makePlan('sp', 2, shape).worldSize).toBe(2);
    const { kvHeads, headDim } = config.layers[0]!.attention as GqaConfig;
    expect(modelSizes(config, 'q4', 'f16').layers[0]!.kvToken).toBe(2 * 2 * headDim);
    expect(shape.kvHeads).toBe(kvHeads);
    // docs/models.md says so.
    const gib = (bytes: number): string => (bytes / 2 ** 30).toFixed(2);
    const plan = makePlan('single', 1, shape);
    const sizes = modelSizes(config, 'q4', 'f16');
    const cache = (contextLength: number): string => {
      const [rank] = planMemory(plan, sizes, { contextLength, slots: 1, prefillChunk: 512, block: 64 });
      const layerBytes = config.layers.map(({ attention }) => {
        const own = attention as GqaConfig;
        const { window = Infinity } = own;
        // Its window's tokens and 512 that a step writes, wherever in a block they begin.
        const tokens = window < contextLength ? window + 512 + 64 : contextLength;
        return own.sharesKv === undefined ? tokens * own.kvHeads * 4 * own.headDim : 0;
      });
      expect(rank!.kvBytes).toBe(layerBytes.reduce((sum, bytes) => sum + bytes, 0));
      return gib(rank!.kvBytes);
    };
    const weights = (['q4', 'q8', 'f16'] as const).map((type) => gib(weightBytes(config, type).bytes));
    expect(page).toContain(`| ${[name, ...weights, cache(8192), cache(32768)].join(' | ')} |`);
  });
  const stateful: Record<string, { config: Readonly<Record<string, unknown>>; millions: number; states: number }> = {
    'LFM2 350M': { config: PUBLISHED['lfm2-350m']!.config, millions: 354.5, states: 80 * 1024 },
    'LFM2 1.2B': { config: PUBLISHED['lfm2-1.2b']!.config, millions: 1170.3, states: 160 * 1024 },
    'Qwen3.5 0.8B': {
      config: PUBLISHED['qwen3.5-0.8b']!.config,
      millions: 752.4,
      states: 18 * (1024 + 72) * 1024,
    },
    'Qwen3.5 35B A3B': {
      config: {
        architectures: ['Qwen3_5MoeForConditionalGeneration'],
        model_type: 'qwen3_5_moe',
        tie_word_embeddings: false,
        // What it leaves out is as in transformers.
        text_config: {
          model_type: 'qwen3_5_moe_text',
          attn_output_gate: true,
          full_attention_interval: 4,
          mamba_ssm_dtype: 'float32',
          max_position_embeddings: 262144,
          mtp_num_hidden_layers: 1,
          num_hidden_layers: 40,
          rope_parameters: {
            mrope_interleaved: true,
            mrope_section: [11, 11, 10],
            partial_rotary_factor: 0.25,
            rope_theta: 10000000,
            rope_type: 'default',
          },
        },
        vision_config: { hidden_size: 1152 },
      },
      millions: 34660.6,
      states: 30 * (2048 + 96) * 1024,
    },
    'Qwen3-Next 80B A3B': {
      config: {
        architectures: ['Qwen3NextForCausalLM'],
        model_type: 'qwen3_next',
        decoder_sparse_step: 1,
        head_dim: 256,
        hidden_size: 2048,
        intermediate_size: 5120,
        linear_num_value_heads: 32,
        max_position_embeddings: 262144,
        mlp_only_layers: [],
        norm_topk_prob: true,
        num_experts: 512,
        num_experts_per_tok: 10,
        num_hidden_layers: 48,
        partial_rotary_factor: 0.25,
        rope_scaling: null,
        rope_theta: 10000000,
        vocab_size: 151936,
      },
      millions: 79674.4,
      states: 36 * (2048 + 96) * 1024,
    },
    'Granite 4 H 350M': {
      config: PUBLISHED['granite-4.0-h-350m']!.config,
      millions: 340,
      states: 28 * (768 + 21) * 1024,
    },
    'Granite 4 H 1B': { config: hybrid, millions: 1462, states: 36 * (1536 + 39) * 1024 },
    'Granite 4 H Tiny': { config: tiny, millions: 6939, states: 36 * (1536 + 39) * 1024 },
  };
  test.each(Object.keys(stateful))('%s: layers with a state, counted and planned', (name) => {
    const { config: raw, millions, states } = stateful[name]!;
    const config = parseModelConfig(raw);
    expect(weightBytes(config, 'q4').parameters / 1e6).toBeCloseTo(millions, 0);
    const plan = makePlan('single', 1, modelShape(config));
    const gib = (bytes: number): string => (bytes / 2 ** 30).toFixed(2);
    const cache = (contextLength: number): string => {
      const sizes = modelSizes(config, 'q4', 'f16');
      const [rank] = planMemory(plan, sizes, { contextLength, slots: 1 });
      // The sequence's own and those that are kept for prefixes.
      expect(rank!.stateBytes).toBe(states * (1 + sizes.keptStates!));
      return gib(rank!.kvBytes);
    };
    const weights = (['q4', 'q8', 'f16'] as const).map((type) => gib(weightBytes(config, type).bytes));
    expect(page).toContain(`| ${[name, ...weights, cache(8192), cache(32768)].join(' | ')} |`);
  });

  test.each([
    // As their cards say, with pictures' and sounds' parameters: these are a little less.
    [
      '26B-A4B',
      25.2,
      { ...gemma4, hidden_size: 2816, intermediate_size: 2112, num_hidden_layers: 30, ...gemma4Experts },
    ],
    [
      '12B',
      11.95,
      { ...gemma4, hidden_size: 3840, intermediate_size: 15360, num_hidden_layers: 48, num_global_key_value_heads: 1 },
    ],
    [
      '31B',
      30.7,
      {
        ...gemma4,
        hidden_size: 5376,
        intermediate_size: 21504,
        num_hidden_layers: 60,
        num_attention_heads: 32,
        num_key_value_heads: 16,
        num_global_key_value_heads: 4,
      },
    ],
  ])('Gemma 4 %s: counted', (_, billions, raw) => {
    const config = parseModelConfig(raw);
    const { parameters } = weightBytes(config, 'q4');
    expect(parameters / 1e9 / billions).toBeGreaterThan(0.99);
    expect(parameters / 1e9 / billions).toBeLessThan(1.01);
  });

  test.each([
    ['all-MiniLM-L6-v2', 22_565_376, { ...encoder, hidden_size: 384, num_hidden_layers: 6, intermediate_size: 1536 }],
    ['bge-small-en-v1.5', 33_212_160, { ...encoder, hidden_size: 384, num_hidden_layers: 12, intermediate_size: 1536 }],
    [
      'XLM-RoBERTa base',
      277_453_056,
      {
        ...encoder,
        model_type: 'xlm-roberta',
        architectures: ['XLMRobertaForSequenceClassification'],
        hidden_size: 768,
        num_hidden_layers: 12,
        intermediate_size: 3072,
        vocab_size: 250_002,
        max_position_embeddings: 514,
        type_vocab_size: 1,
        pad_token_id: 1,
      },
    ],
    ['ModernBERT base', 149_014_272, { model_type: 'modernbert', architectures: ['ModernBertForMaskedLM'] }],
    ['EmbeddingGemma 300M', 302_863_104, PUBLISHED['embeddinggemma-300m']!.config],
  ])('%s: counted, without what makes its vectors', (_, parameters, raw) => {
    const config = parseModelConfig(raw);
    expect(weightBytes(config, 'f32').parameters).toBe(parameters);
    expect(attendsBothWays(config)).toBe(true);
  });

  test.each<[change: Record<string, unknown>, message: RegExp]>([
    [{ layer_types: undefined }, /every layer is recurrent/],
    [{ layer_types: [...Array.from({ length: 39 }, () => 'attention'), 'linear'] }, /layer_types "linear".*'mamba'/],
    [{ mamba_proj_bias: true }, /mamba_proj_bias true.*no bias/],
    [{ time_step_limit: [0.001, 100] }, /time_step_limit.*not clamped/],
    [{ mamba_n_groups: 5 }, /mamba_n_heads is 48.*multiple of mamba_n_groups \(5\)/],
    [{ mamba_n_heads: 47, mamba_d_head: 'auto' }, /mamba_n_heads.*divisor/],
    [{ mamba_d_state: 300 }, /mamba_d_state 300.*up to 256/],
    [{ mamba_d_head: 12 }, /mamba_d_head 12.*multiples of 8/],
    [{ mamba_d_conv: 9 }, /conv kernel 9/],
  ])("Granite 4's hybrids are refused by what doesn't run: %o", (change, message) => {
    expect(() => parseModelConfig({ ...hybrid, time_step_limit: [0, Infinity], ...change })).toThrow(message);
  });
});

const folder = new URL('../../../../shared/real/configs/', import.meta.url);
const real = existsSync(folder) ? readdirSync(folder) : [];

test('docs/library.md names every model_type and every architecture of GGUF files', () => {
  const names = [...supportedModelTypes(), ...supportedGguf()];
  const guide = readFileSync('docs/library.md', 'utf8');
  expect(names.filter((name) => !guide.includes(`\`${name}\``))).toEqual([]);
});

test.skipIf(real.length === 0)('every published config is read, or refused by what its model has', async () => {
  const refused: string[] = [];
  for (const name of real) {
    const text = readFileSync(new URL(`${name}/config.json`, folder), 'utf8');
    const { quantization_config: quantized } = parsePythonJson(text) as Record<string, unknown>;
    try {
      const config = await readModelConfig(text);
      expect(config.layers.length, name).toBeGreaterThan(0);
      // Those whose files tell of an encoder.
      if (/"depth"/.test(text)) expect(config.vision, name).toMatchObject({ merger: {}, places: { side: 48 } });
      if (!name.startsWith('openai--gpt-oss')) expect(quantized ?? undefined, name).toBeUndefined();
    } catch (error) {
      expect(error, name).toMatchObject({ code: 'unsupported' });
      refused.push((error as Error).message);
    }
  }
  for (const message of refused)
    expect(message).toMatch(
      /^config\.json: (model_type|architectures|quantization_config|[a-z_.]+) .*(supported|runs)/s,
    );
});
