import { afterAll, describe, expect, test } from 'vitest';
import { controlledLogit } from '../../../../shaders/sampling/adjust_logits/reference.js';
import { drawReference, keptTokens, sortedIds } from '../../../../shaders/sampling/sample/reference.js';
import { alignUp } from '../../../base/math.js';
import { Random } from '../../../base/random.js';
import { type Buffer, type Program, Recorder } from '../../../gpu/index.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { RankStep } from '../../../model/layers/world.js';
import type { StartOptions } from '../../contracts/rank.js';
import { Sampler, type SamplingMode, SlotNeeds } from './sampling.js';
import { biasEntries, hasControls } from './sampling_options.js';

// The quicker one to compile for, where there are two software adapters: each kernel's own test runs on both.
const adapter = (await testAdapters()).at(-1)!;
const device = await adapter.open('software');
const hardware = await adapter.open('hardware');
afterAll(() => {
  device.dispose();
  hardware.dispose();
});

const VOCAB = 300;
const STRIDE = alignUp(VOCAB, 32);
const SLOTS = 4;
const RING = 8;
const PROMPT = [3, 7, 7, 250];

/** A sampler of one rank whose logits are given for each step, fed with what it sampled as a batch feeds it. */
class Rig {
  readonly #tokens: Buffer;
  readonly #rowInfo: Buffer;
  readonly #needs = new SlotNeeds();
  readonly #programs = new Map<string, Program<RankStep>>();
  readonly #sampler: Sampler;
  /** Of the last step. */
  mode: SamplingMode | undefined;

  constructor(readonly on = device) {
    this.#tokens = on.createBuffer('tokens', SLOTS * 4);
    this.#rowInfo = on.createBuffer('row_info', SLOTS * 8);
    this.#sampler = new Sampler(on, {
      slots: SLOTS,
      vocab: VOCAB,
      stride: STRIDE,
      ring: RING,
      slices: [[0, VOCAB]],
      part: 0,
      tokens: this.#tokens,
      rowInfo: this.#rowInfo,
    });
    on.write(this.#rowInfo, 0, new Uint32Array(SLOTS * 2).fill(0xffffffff));
  }

  /** `generated`: those of a request that goes on; its next step feeds the last of them. */
  async start(slot: number, options: StartOptions, generated: readonly number[] = []): Promise<void> {
    if (hasControls(options)) await this.#sampler.prepareControls();
    this.#needs.set(slot, options);
    const seen = Uint32Array.from([...PROMPT, ...generated]);
    const position = seen.length - 1;
    this.#sampler.start(slot, { ...options, counter: generated.length }, seen, position, generated.length === 0);
    this.on.write(this.#tokens, slot * 4, Uint32Array.of(generated.at(-1) ?? 299));
    this.on.write(this.#rowInfo, slot * 8, Uint32Array.of(position, slot));
  }

  stop(slot: number): void {
    this.#needs.delete(slot);
    this.#sampler.stop(slot);
    this.on.write(this.#rowInfo, slot * 8, Uint32Array.of(0xffffffff, slot));
  }

  /** Ids by slot of one step over these logits, not waited for. */
  submit(logits: Float32Array): Promise<Uint32Array> {
    const sampler = this.#sampler;
    const mode = sampler.modeFor(this.#needs.mode);
    this.mode = mode;
    const { controls } = this.#needs;
    const key = `${mode} ${controls}`;
    let program = this.#programs.get(key);
    if (!program) {
      const recorder = new Recorder<RankStep>(this.on, 'sampling');
      const searched = controls ? sampler.recordControls(recorder) : sampler.logits;
      sampler.recordCandidates(recorder, mode, searched);
      sampler.recordSample(recorder, mode, searched);
      program = recorder.finish();
      this.#programs.set(key, program);
    }
    this.on.write(sampler.logits, 0, logits);
    const encoder = this.on.gpu.createCommandEncoder();
    const pass = encoder.beginComputePass();
    program.encode(pass, { rows: [SLOTS], chunks: 1 } as RankStep);
    pass.end();
    const { ids, offset } = sampler.nextIds();
    this.on.gpu.queue.submit([encoder.finish()]);
    return this.on.read(ids, offset, SLOTS * 4).then((bytes) => new Uint32Array(bytes));
  }
}

/** What a request samples from one step's logits, in float64 and in vLLM's order; undefined: too near to an edge to be checked. */
function sampled(logits: Float32Array, options: StartOptions, generated: readonly number[]): number | undefined {
  const { temperature = 0, topK = 0, topP = 1, minP = 0, minTokens = 0, endIds = [] } = options;
  const seen = new Set([...PROMPT, ...generated]);
  const bias = new Map(biasEntries(options.logitBias));
  const own = {
    repetitionPenalty: Math.fround(options.repetitionPenalty ?? 1),
    frequencyPenalty: Math.fround(options.frequencyPenalty ?? 0),
    presencePenalty: Math.fround(options.presencePenalty ?? 0),
  };
  const adjusted = Float64Array.from({ length: VOCAB }, (_, id) => {
    if (generated.length < minTokens && endIds.includes(id)) return -1e30;
    const count = generated.filter((other) => other === id).length;
    return controlledLogit(logits[id]!, Math.fround(bias.get(id) ?? 0), seen.has(id), count, own);
  });
  const order = sortedIds(adjusted);
  const near = (a: number, b: number): boolean => Math.abs(a - b) <= 1e-5 * Math.max(1, Math.abs(a), Math.abs(b));
  if (temperature < 1e-5) {
    return near(adjusted[order[0]!]!, adjusted[order[1]!]!) ? undefined : order[0]!;
  }
  const hot = Math.fround(temperature);
  const below = (id: number): number => (adjusted[order[0]!]! - adjusted[id]!) / hot;
  const reach = minP > 0 ? -Math.log(minP) : Number.POSITIVE_INFINITY;
  const kept = order.filter((id) => below(id) <= reach && adjusted[id]! > -1e29);
  if (minP > 0 && order.some((id) => near(below(id), reach) && id !== order[0])) return undefined;
  // The order of nearly equal logits is f32's to decide, where it decides which come first.
  const edge = topK > 0 && topK < kept.length ? [kept[topK - 1]!, kept[topK]!] : undefined;
  if (edge && near(adjusted[edge[0]!]!, adjusted[edge[1]!]!)) return undefined;
  const params = { temperature: hot, topK, topP: Math.fround(topP), repetitionPenalty: 1, active: true };
  const seed = [options.seed % 2 ** 32, Math.floor(options.seed / 2 ** 32)] as const;
  const draw = { ...params, seed, counter: generated.length };
  const { id, sure } = drawReference(keptTokens(adjusted, draw, kept), draw);
  return sure ? id : undefined;
}

const logitsOf = (random: Random): Float32Array => random.normals(SLOTS * STRIDE, 2);
/** Much the same at each step: what was generated before has something to do. */
function nearly(lead: Float32Array, random: Random): Float32Array {
  const noise = logitsOf(random);
  return lead.map((logit, i) => logit * 1.5 + noise[i]! * 0.2);
}
const row = (logits: Float32Array, slot: number): Float32Array => logits.subarray(slot * STRIDE, slot * STRIDE + VOCAB);
const pick = <T>(random: Random, list: readonly T[]): T => list[random.integer(list.length)]!;

/** Any of the controls, and often none of one kind. */
function randomOptions(random: Random): StartOptions {
  const ids = (count: number): number[] => Array.from({ length: count }, () => random.integer(VOCAB));
  const bias = ids(pick(random, [0, 0, 1, 8, VOCAB])).map((id) => [id, pick(random, [-100, 100, -1, 0.5, 3])] as const);
  return {
    seed: random.integer(2 ** 40),
    temperature: pick(random, [0, 0, 0.5, 1, 1.7, 1e30]),
    topK: pick(random, [0, 0, 1, 5, 40, 200]),
    topP: pick(random, [1, 1, 0.9, 0.5]),
    minP: pick(random, [0, 0, 0.02, 0.3, 1]),
    repetitionPenalty: pick(random, [1, 1, 1.4, 0.6]),
    frequencyPenalty: pick(random, [0, 0, 0.7, -0.5, 2]),
    presencePenalty: pick(random, [0, 0, 1.1, -1.5]),
    logitBias: random.integer(2) === 0 ? Object.fromEntries(bias) : new Map(bias),
    minTokens: pick(random, [0, 0, 3, 9]),
    endIds: ids(pick(random, [0, 1, 5, 150])),
  };
}

interface Request {
  readonly options: StartOptions;
  readonly generated: number[];
}

describe('each control against float64', () => {
  const base = { seed: 5, temperature: 1 } as const;
  test.each<[string, StartOptions]>([
    ['min_p', { ...base, minP: 0.15 }],
    ['min_p of 1 keeps the best alone', { ...base, minP: 1 }],
    ['min_p after temperature', { ...base, temperature: 3, minP: 0.4 }],
    ['min_p, then top-k, then top-p', { ...base, temperature: 2, minP: 0.05, topK: 12, topP: 0.8 }],
    ['frequency penalty', { seed: 1, frequencyPenalty: 1.5 }],
    ['negative frequency penalty', { ...base, frequencyPenalty: -2 }],
    ['presence penalty', { ...base, temperature: 0.3, presencePenalty: 2 }],
    ['logit bias', { ...base, logitBias: { 17: 6, 40: -100, 41: 6.5 } }],
    ['a bias of every token', { ...base, logitBias: new Map(Array.from({ length: VOCAB }, (_, id) => [id, id % 7])) }],
    ['bias, then repetition penalty', { seed: 2, logitBias: { 3: 4, 7: 4, 250: -4 }, repetitionPenalty: 1.8 }],
    ['min_tokens', { ...base, minTokens: 6, endIds: Array.from({ length: 290 }, (_, id) => id) }],
    [
      'a bias cannot bring back what min_tokens holds back',
      { seed: 3, minTokens: 4, endIds: [9], logitBias: { 9: 100 } },
    ],
    [
      'held back at any temperature',
      { ...base, temperature: 1e38, minTokens: 9, endIds: Array.from({ length: 298 }, (_, id) => id) },
    ],
  ])('%s', { timeout: 60_000 }, async (_name, options) => {
    const random = new Random(7);
    const rig = new Rig();
    await rig.start(1, options);
    const generated: number[] = [];
    let checked = 0;
    const lead = logitsOf(random);
    for (let step = 0; step < 12; step++) {
      const logits = nearly(lead, random);
      const ids = await rig.submit(logits);
      const expected = sampled(row(logits, 1), options, generated);
      if (expected !== undefined) expect(ids[1], `step ${step}`).toBe(expected);
      if (expected !== undefined) checked++;
      generated.push(ids[1]!);
    }
    expect(checked).toBeGreaterThan(8);
  });
});

test('on a GPU top-k samples from candidates, the same tokens', { timeout: 120_000 }, async () => {
  const random = new Random(23);
  const rigs = [new Rig(), new Rig(hardware)];
  const settings: StartOptions[] = [
    { seed: 1, temperature: 1, topK: 64, topP: 0.999 },
    { seed: 2, temperature: 1.7, topK: 40 },
    { seed: 3, temperature: 30, topK: 2, topP: 0.5, repetitionPenalty: 1.3 },
    { seed: 4, temperature: 0.7, topK: 20, topP: 0.8, frequencyPenalty: 0.5, logitBias: { 7: 5 } },
  ];
  for (const rig of rigs) {
    for (const [slot, options] of settings.entries()) await rig.start(slot, options);
  }
  for (let step = 0; step < 8; step++) {
    const logits = logitsOf(random);
    const [walked, listed] = await Promise.all(rigs.map((rig) => rig.submit(logits)));
    expect(listed, `step ${step}`).toEqual(walked);
  }
  expect(rigs.map(({ mode }) => mode)).toEqual(['whole', 'top-k']);
  // A request whose tokens need not be among the candidates brings the walk back.
  for (const rig of rigs) await rig.start(0, { seed: 5, temperature: 1, topP: 0.9999 });
  const logits = logitsOf(random);
  const [walked, listed] = await Promise.all(rigs.map((rig) => rig.submit(logits)));
  expect(listed).toEqual(walked);
  expect(rigs.map(({ mode }) => mode)).toEqual(['whole', 'whole']);
});

test('any mixture, in slots that come and go, with four steps in flight', { timeout: 300_000 }, async () => {
  const random = new Random(41);
  const rig = new Rig();
  const requests = new Map<number, Request>();
  let [checked, total] = [0, 0];
  const lead = logitsOf(random);
  for (let round = 0; round < 60; round++) {
    for (let slot = 0; slot < SLOTS; slot++) {
      const dice = random.integer(5);
      const running = requests.get(slot);
      if (dice === 0 || (dice === 1 && !running)) {
        rig.stop(slot);
        const options = dice === 0 && random.integer(3) === 0 ? { seed: round, temperature: 1 } : randomOptions(random);
        await rig.start(slot, options);
        requests.set(slot, { options, generated: [] });
      } else if (dice === 1) {
        rig.stop(slot);
        requests.delete(slot);
      } else if (dice === 2 && running && running.generated.length > 0) {
        // Preempted, and goes on.
        rig.stop(slot);
        await rig.start(slot, running.options, running.generated);
      }
    }
    const steps = Array.from({ length: 4 }, () => nearly(lead, random));
    const reads = steps.map((logits) => rig.submit(logits));
    for (const [step, read] of reads.entries()) {
      const ids = await read;
      for (const [slot, { options, generated }] of requests) {
        const expected = sampled(row(steps[step]!, slot), options, generated);
        total++;
        if (expected !== undefined) {
          expect(ids[slot], `round ${round}, step ${step}, slot ${slot}: ${JSON.stringify(options)}`).toBe(expected);
          checked++;
        }
        generated.push(ids[slot]!);
      }
    }
  }
  // Of the others nearly equal numbers decide.
  expect(checked).toBeGreaterThan(0.9 * total);
});
