import { expect, test } from 'vitest';
import { openModelFiles } from '../../src/engine/files/model_files.js';
import { openGguf, openSource } from '../../src/loader/index.js';
import { makeRandomModel } from '../../src/model/testing/random_model.js';
import { ggufBytes } from './gguf_bytes.js';

test.each([
  [256, false],
  [64, true],
])('a Q4_K_M file has the types that llama-quantize gives, hidden size %d', async (hidden, tied) => {
  const config = { hidden_size: hidden, intermediate_size: 256, num_hidden_layers: 16, tie_word_embeddings: tied };
  const { files } = makeRandomModel({ config });
  const model = await openModelFiles(await openSource([...files].map(([name, data]) => new File([data], name))));
  const bytes = await ggufBytes(model.config, await model.reader(), 'q4_k_m');
  const source = await openSource([new File([bytes], 'm.gguf')]);
  const { tensors } = await openGguf(source, source.gguf!);
  const typeOf = (name: string): string | undefined => tensors.get(`${name}.weight`)?.type;
  const layersOf = (part: string, type: string): number[] =>
    Array.from({ length: 16 }, (_, layer) => layer).filter((layer) => typeOf(`blk.${layer}.${part}`) === type);
  // use_more_bits of llama-quant.cpp: the first and last eighths, and every third between.
  const more = [0, 1, 4, 7, 10, 13, 14, 15];
  const [usual, better] = hidden === 256 ? ['Q4_K', 'Q6_K'] : ['Q5_0', 'Q8_0'];
  expect(layersOf('attn_v', better)).toEqual(more);
  expect(layersOf('ffn_down', 'Q6_K')).toEqual(more);
  for (const part of ['attn_q', 'attn_k', 'ffn_gate', 'ffn_up']) expect(layersOf(part, usual)).toHaveLength(16);
  expect(typeOf('output')).toBe(tied ? undefined : better);
  expect(typeOf('token_embd')).toBe(tied ? better : usual);
  expect(typeOf('output_norm')).toBe('F32');
});
