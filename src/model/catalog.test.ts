import { describe, expect, it } from 'vitest';
import { WEIGHT_TYPES } from '../../shaders/linear/pack.js';
import { catalogModel, MODELS } from '../loader/hub/catalog.js';
import { parseHubName } from '../loader/hub/hub_name.js';
import { makePlan, planMemory } from '../placement/index.js';
import { loadFamilies, parseModelConfig } from './families/registry.js';
import { modelSizes } from './model_sizes.js';
import { modelShape } from './shape.js';
import { PUBLISHED } from './testing/published_configs.js';
import { weightBytes } from './weights/model_map.js';

await loadFamilies();

const memory = { contextLength: 256, slots: 1 };

describe('the catalog', () => {
  it('has names of its own, in order of size', () => {
    expect(new Set(MODELS.map(({ name }) => name)).size).toBe(MODELS.length);
    expect(MODELS.map(({ parameters }) => parameters)).toEqual(
      MODELS.map(({ parameters }) => parameters).sort((a, b) => a - b),
    );
    expect(MODELS.map(({ name }) => name).sort()).toEqual(Object.keys(PUBLISHED).sort());
    expect(catalogModel('SmolLM2-360M-Instruct')?.id).toBe('bartowski/SmolLM2-360M-Instruct-GGUF');
    expect(catalogModel('smollm2')).toBeUndefined();
  });

  describe.each(MODELS)('$name', (model) => {
    const { config: raw, generation } = PUBLISHED[model.name]!;
    const config = parseModelConfig(raw, generation);

    it("says what the model's configuration says", () => {
      expect(model.contextLength).toBe(config.maxPositions);
      expect(model.sampling).toEqual({
        ...('temperature' in generation && { temperature: generation['temperature'] }),
        ...('top_p' in generation && { topP: generation['top_p'] }),
        ...('top_k' in generation && { topK: generation['top_k'] }),
        ...('repetition_penalty' in generation && { repetitionPenalty: generation['repetition_penalty'] }),
      });
      expect(model.parameters).toBe(weightBytes(config, 'f16').parameters);
      const { repo, revision } = parseHubName(`${model.id}@${model.revision}`);
      expect([repo, revision]).toEqual([model.id, model.revision]);
      expect(model.revision).toMatch(/^(main|[0-9a-f]{40})$/);
      for (const digest of Object.values(model.integrity ?? {})) expect(digest).toMatch(/^[0-9a-f]{64}$/);
    });

    it.each(WEIGHT_TYPES.filter((type) => type !== 'f32'))('takes the memory that it says with %s', (type) => {
      const plan = makePlan('single', 1, modelShape(config));
      const [rank] = planMemory(plan, modelSizes(config, type, 'f32'), memory);
      expect(model.weightBytes[type]).toBe(weightBytes(config, type).bytes);
      expect(rank!.weightBytes / model.weightBytes[type]).toBeCloseTo(1, 3); // without padding of rows
      expect(model.kvBytesPerToken).toBe((rank!.kvBytes - rank!.stateBytes) / memory.contextLength);
    });

    it('downloads little more than the GPU holds of its file', () => {
      const { stored, q4, f16 } = model.weightBytes;
      expect(stored).toBeLessThanOrEqual(model.downloadBytes);
      expect(stored).toBeGreaterThan(0.95 * q4);
      expect(stored).toBeLessThan(f16);
      expect(model.unverified).toContain('weightBytes.stored');
      // Gemma 4's inputs for each layer stay in the file.
      if (!model.name.startsWith('gemma-4')) expect(stored).toBe(model.downloadBytes);
      if (!['minicpm3-4b', 'deepseek-v2-lite-chat'].includes(model.name))
        expect(Object.keys(model.integrity ?? {})).toEqual([model.file]);
    });
  });
});
