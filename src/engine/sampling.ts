import { argmaxPartial } from '../../shaders/sampling/argmax_partial/index.js';
import {
  partialsPerSlot,
  SAMPLING_FIELDS,
  SAMPLING_PARAMS_BYTES,
  type SamplingProblem,
  seenWords,
  writeSamplingParams,
} from '../../shaders/sampling/params.js';
import { sample } from '../../shaders/sampling/sample/index.js';
import type { Buffer, Device, Recorder } from '../gpu/index.js';
import type { SamplingOptions } from './api.js';

/** A seed for a generation that names none. */
export const randomSeed = (): number => Math.floor(Math.random() * 2 ** 48);

/** @throws SplitkvError `usage` for a value out of range, before any work is done. */
export function checkSampling(options: SamplingOptions & { readonly seed: number }): void {
  writeSamplingParams(new DataView(new ArrayBuffer(SAMPLING_PARAMS_BYTES)), 0, values(options));
}

const values = (options: SamplingOptions & { readonly seed: number; readonly counter?: number }) => ({
  temperature: options.temperature ?? 0,
  topK: options.topK ?? 0,
  topP: options.topP ?? 1,
  repetitionPenalty: options.repetitionPenalty ?? 1,
  seed: options.seed,
  counter: options.counter ?? 0,
});

/** Sampling state of every slot on the GPU: the sampled id goes straight into the next step's tokens and positions. */
export class Sampler {
  /** f32 [slots][logitsStride]. */
  readonly logits: Buffer;
  readonly #params: Buffer;
  readonly #seen: Buffer;
  readonly #partials: Buffer;
  readonly #counter: Buffer;
  readonly #ids: Buffer;
  readonly #problem: SamplingProblem;
  /** Follows the GPU's own step counter: which row of `ids` the next step writes. */
  #step = 0;

  constructor(
    readonly device: Device,
    readonly shape: {
      readonly slots: number;
      readonly vocabSize: number;
      readonly logitsStride: number;
      /** Steps whose ids are kept on the GPU. */
      readonly ring: number;
      readonly tokens: Buffer;
      readonly rowInfo: Buffer;
    },
  ) {
    const { slots, vocabSize, logitsStride, ring } = shape;
    this.#problem = { slots, vocab: vocabSize, stride: logitsStride, ring };
    this.logits = device.createBuffer('logits', slots * logitsStride * 4);
    this.#params = device.createBuffer('sampling', slots * SAMPLING_PARAMS_BYTES);
    this.#seen = device.createBuffer('seen', slots * seenWords(vocabSize) * 4);
    this.#partials = device.createBuffer('argmax partials', slots * partialsPerSlot(vocabSize) * 8);
    this.#counter = device.createBuffer('step_counter', 4);
    this.#ids = device.createBuffer('ids', ring * slots * 4);
  }

  /** Records sampling. `draws: false` is for slots that are all greedy: the same ids, and far less to compile. */
  record(recorder: Recorder, draws: boolean): void {
    const { tokens, rowInfo } = this.shape;
    recorder.dispatch(argmaxPartial, this.#problem, {
      logits: this.logits,
      sampling: this.#params,
      seen: this.#seen,
      partials: this.#partials,
      step_counter: this.#counter,
    });
    recorder.dispatch(
      sample,
      { ...this.#problem, draws },
      {
        logits: this.logits,
        partials: this.#partials,
        sampling: this.#params,
        seen: this.#seen,
        tokens,
        row_info: rowInfo,
        ids: this.#ids,
        step_counter: this.#counter,
      },
    );
  }

  /** Where the step being submitted writes its ids. Call once for each replay of a program that samples. */
  nextIds(): { readonly ids: Buffer; readonly offset: number } {
    const offset = (this.#step % this.#problem.ring) * this.#problem.slots * 4;
    this.#step++;
    return { ids: this.#ids, offset };
  }

  /** Begins a request, or goes on with one that had sampled `counter` tokens: its parameters, and the tokens seen so far. */
  start(
    slot: number,
    options: SamplingOptions & { readonly seed: number; readonly counter?: number },
    seen: readonly number[],
  ): void {
    const params = new DataView(new ArrayBuffer(SAMPLING_PARAMS_BYTES));
    writeSamplingParams(params, 0, values(options));
    this.device.write(this.#params, slot * SAMPLING_PARAMS_BYTES, params);
    const words = new Uint32Array(seenWords(this.#problem.vocab));
    for (const id of seen) words[id >>> 5]! |= 1 << (id & 31);
    this.device.write(this.#seen, slot * words.byteLength, words);
  }

  stop(slot: number): void {
    this.device.write(this.#params, slot * SAMPLING_PARAMS_BYTES + SAMPLING_FIELDS.active, new Uint32Array([0]));
  }
}
