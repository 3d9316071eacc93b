import { adjustLogits } from '../../../../shaders/sampling/adjust_logits/index.js';
import {
  CONTROL_BYTES,
  controlBytes,
  ENDS_TEXT,
  HOTTEST,
  LARGEST_LOGIT,
} from '../../../../shaders/sampling/controls.js';
import { minP } from '../../../../shaders/sampling/min_p/index.js';
import type { SliceProblem } from '../../../../shaders/sampling/params.js';
import type { Buffer, Device, Tensor } from '../../../gpu/index.js';
import type { RankRecorder } from '../../../model/layers/world.js';
import { biasEntries } from './sampling_options.js';
import type { StartOptions } from '../../contracts/rank.js';

/**
 * What changes the logits of requests that ask for it: biases, penalties by count, min_tokens and min_p. Made when the first such
 * request begins: three buffers as large as the logits. Each rank has its own slice of the vocabulary, and counts the tokens that
 * steps feed; none waits for the host or for another.
 */
export class LogitControls {
  /** f32 [slots][stride]: what is searched instead of the logits. */
  readonly adjusted: Buffer;
  readonly #controls: Buffer;
  readonly #biases: Buffer;
  readonly #counts: Buffer;
  readonly #active = new Set<number>();
  /** Slots whose biases aren't all 0. */
  readonly #biased = new Set<number>();

  constructor(
    readonly device: Device,
    readonly problem: SliceProblem,
  ) {
    const { slots, stride } = problem;
    this.adjusted = device.createBuffer('adjusted logits', slots * stride * 4);
    this.#controls = device.createBuffer('sampling controls', slots * CONTROL_BYTES);
    this.#biases = device.createBuffer('logit biases', slots * stride * 4);
    this.#counts = device.createBuffer('token counts', slots * stride * 4);
  }

  /** Records what becomes of this rank's logits, which stay. Once in each step of a batch that has controls. */
  recordAdjust(
    recorder: RankRecorder,
    inputs: { readonly logits: Tensor; readonly seen: Tensor; readonly tokens: Tensor; readonly row_info: Tensor },
  ): void {
    recorder.dispatch(adjustLogits, this.problem, {
      ...inputs,
      controls: this.#controls,
      biases: this.#biases,
      counts: this.#counts,
      adjusted: this.adjusted,
    });
  }

  /** Records min_p where all adjusted logits are, after the search for the best of them. */
  recordMinP(recorder: RankRecorder, inputs: { readonly partials: Tensor; readonly sampling: Tensor }): void {
    recorder.dispatch(minP, this.problem, { ...inputs, controls: this.#controls, adjusted: this.adjusted });
  }

  /** Of a request's parameters those that are other ones where it has controls, which see to the repetition penalty. */
  beside({ temperature = 0 }: StartOptions): { readonly temperature: number; readonly repetitionPenalty: number } {
    return { temperature: Math.min(temperature, HOTTEST), repetitionPenalty: 1 };
  }

  /**
   * Begins a request that has controls.
   * @param at the position that its next step is at, when `counter` tokens were generated, the one fed there included
   * @param generated those that aren't fed any more
   * @param isFirst the next step samples from the prompt, and feeds nothing
   */
  start(slot: number, options: StartOptions, at: number, generated: Uint32Array, isFirst: boolean): void {
    const { stride } = this.problem;
    const { counter = 0, endIds = [], logitBias } = options;
    const { device } = this;
    const someAllowed = options.allowed !== undefined;
    const values = { ...options, begin: at - counter, first: isFirst ? at : undefined, someAllowed };
    device.write(this.#controls, slot * CONTROL_BYTES, controlBytes(values));
    this.#active.add(slot);
    const counts = new Uint32Array(stride);
    for (const id of generated) counts[id]!++;
    for (const id of endIds) counts[id] = (counts[id]! | ENDS_TEXT) >>> 0;
    device.write(this.#counts, slot * stride * 4, counts);
    const entries = biasEntries(logitBias);
    if (entries.length === 0 && !this.#biased.has(slot)) return;
    const biases = new Float32Array(stride);
    for (const [id, bias] of entries) biases[id] = Math.min(LARGEST_LOGIT, Math.max(-LARGEST_LOGIT, bias));
    device.write(this.#biases, slot * stride * 4, biases);
    if (entries.length > 0) this.#biased.add(slot);
    else this.#biased.delete(slot);
  }

  /** A request without controls begins in the slot, or none. */
  stop(slot: number): void {
    if (!this.#active.delete(slot)) return;
    this.device.write(this.#controls, slot * CONTROL_BYTES, new Uint8Array(CONTROL_BYTES));
  }
}
