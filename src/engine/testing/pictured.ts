import { expect } from 'vitest';
import { cutPicture, cutSettings } from '../../images/cuts.js';
import type { Picture } from '../../images/picture.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import type { makeRandomVision } from '../../model/testing/random_vision.js';
import type { ImagePrompt, Model } from '../contracts/api.js';
import { memoryOnPaper } from '../ranks/rank_memory.js';

// What models of every family with pictures are asked.

/** Of every position. */
export const logitsOf = async (of: Model, ids: readonly number[]): Promise<readonly Float32Array[]> =>
  (await of.logits(ids, { all: true })).rows;

/** What a picture is cut into, as the files of a random model say. */
export function tilesOf(
  { files, config }: Pick<ReturnType<typeof makeRandomVision>, 'files' | 'config'>,
  picture: Picture,
): readonly Picture[] {
  const file = JSON.parse(new TextDecoder().decode(files.get('preprocessor_config.json'))) as Record<string, unknown>;
  return cutPicture(picture, config.vision!, cutSettings(file, config.vision!)).tiles;
}

/** A model that is opened once, where it is first asked for, with a prompt's ids and their logits. */
export function openedOnce(open: () => Promise<Model>, prompt: ImagePrompt) {
  const read = async () => {
    const model = await open();
    const ids = await model.readPrompt(prompt);
    return { model, ids, expected: await logitsOf(model, ids) };
  };
  let opened: ReturnType<typeof read> | undefined;
  return () => (opened ??= read());
}

/** The largest difference, over the largest of the right ones. */
export function errorOf(found: readonly Float32Array[], of: readonly Float64Array[]): number {
  const largest = Math.max(...of.flatMap((row) => [...row].map(Math.abs)));
  const worst = found.map((row, at) =>
    row.reduce((most, logit, id) => Math.max(most, Math.abs(logit - of[at]![id]!)), 0),
  );
  return Math.max(...worst) / largest;
}

/** The logits of a prompt, and an answer to it. */
export async function expectSameBits(
  other: Model,
  model: Model,
  prompt: ImagePrompt,
  expected: readonly Float32Array[],
): Promise<void> {
  const found = await logitsOf(other, await other.readPrompt(prompt));
  expect(found.length).toBe(expected.length);
  for (const [position, row] of found.entries()) expect(row, `position ${position}`).toEqual(expected[position]);
  const answer = { maxTokens: 6, ignoreEos: true, seed: 3 };
  const { tokens } = await other.generate(prompt, answer).result;
  expect(tokens).toEqual((await model.generate(prompt, answer).result).tokens);
}

/** Token by token, and from the cache. @param longer begins with the prompt */
export async function expectGoesOn(model: Model, prompt: ImagePrompt, longer: ImagePrompt): Promise<void> {
  const answer = { maxTokens: 8, ignoreEos: true, temperature: 0 };
  const ids = await model.readPrompt(prompt);
  const fresh = await model.generate(prompt, { ...answer, cachePrompt: false }).result;
  const next = (await model.logits([...ids, ...fresh.tokens.slice(0, 7)])).rows.at(-1)!;
  expect(next.indexOf(Math.max(...next))).toBe(fresh.tokens[7]);
  expect((await model.generate(prompt, answer).result).tokens).toEqual(fresh.tokens);
  const cached = await model.generate(longer, answer).result;
  expect(cached.tokens).toEqual((await model.generate(longer, { ...answer, cachePrompt: false }).result).tokens);
}

/** A model's weights by rank, the encoder among them, are as they are counted beforehand. */
export async function expectAsOnPaper({ info }: Model, config: ModelConfig, contextLength: number): Promise<void> {
  const runner = { slots: 1, contextLength, prefillChunk: 256, kvType: 'f32', images: true } as const;
  const paper = await memoryOnPaper(info.plan, { config, type: 'f32' }, runner);
  expect(paper.map(({ weightBytes }) => weightBytes)).toEqual(info.ranks.map(({ weightBytes }) => weightBytes));
}
