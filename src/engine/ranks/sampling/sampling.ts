/**
 * Room: a slot's next token from its logits: the kernels of a step (here), the controls before them (logit_controls.ts) and
 * what options ask of them. Read sampling_options.ts next.
 */

import { nth } from '../../../base/lists.js';
import { argmaxPartial } from '../../../../shaders/sampling/argmax_partial/index.js';
import { binWeights } from '../../../../shaders/sampling/bin_weights/index.js';
import { candidates } from '../../../../shaders/sampling/candidates/index.js';
import { listBins } from '../../../../shaders/sampling/list_bins/index.js';
import { markSeen } from '../../../../shaders/sampling/mark_seen/index.js';
import { mergeCandidates } from '../../../../shaders/sampling/merge_candidates/index.js';
import {
  binnedBytes,
  CANDIDATES,
  candidateTiles,
  partialsPerSlot,
  SAMPLING_FIELDS,
  SAMPLING_PARAMS_BYTES,
  seenWords,
  type SliceProblem,
  type VocabSlice,
  writeSamplingParams,
} from '../../../../shaders/sampling/params.js';
import { sample } from '../../../../shaders/sampling/sample/index.js';
import type { Buffer, Device, RowsOf } from '../../../gpu/index.js';
import type { RankRecorder } from '../../../model/layers/world.js';
import type { SamplingOptions } from '../../contracts/api.js';
import { checkControls, dropsUnlikely, hasControls, isGreedy, readsSeen } from './sampling_options.js';
import type { LogitControls } from './logit_controls.js';
import type { AllowedTokens, DrawOptions, StartOptions } from '../../contracts/rank.js';

/** A seed for a generation that names none. */
export const randomSeed = (): number => Math.floor(Math.random() * 2 ** 48);

/**
 * @param vocabSize token ids are below it, where it is known
 * @throws SplitkvError `usage` for a value out of range, before any work is done.
 */
export function checkSampling(
  options: SamplingOptions & { readonly seed: number; readonly maxTokens?: number },
  vocabSize?: number,
): void {
  checkControls(options, vocabSize);
  // What rounds to nothing on the GPU.
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

/**
 * What a batch's slots need of the logits, the least first. `greedy`: every rank's best token. `top-k`: every rank's CANDIDATES best
 * tokens. `whole`: all logits in one place.
 */
const SAMPLING_MODES = ['greedy', 'top-k', 'whole'] as const;
export type SamplingMode = (typeof SAMPLING_MODES)[number];

/** The least that a slot with these options is sampled from exactly. */
export function samplingMode(options: SamplingOptions): SamplingMode {
  const { topK = 0 } = options;
  if (isGreedy(options)) return 'greedy';
  return topK >= 1 && topK <= CANDIDATES && !dropsUnlikely(options) ? 'top-k' : 'whole';
}

/** `ring`: steps whose ids are kept on the GPU. */
interface SamplerShape extends Omit<SliceProblem, 'slice'> {
  /** Tokens whose logits each rank has that has some; the first one's rank samples. */
  readonly slices: readonly VocabSlice[];
  /** This rank's of `slices`. */
  readonly part: number;
  readonly tokens: Buffer;
  readonly rowInfo: Buffer;
}

/**
 * Sampling state of every slot on a rank that has logits. The first rank samples: the sampled id goes straight into the next step's
 * tokens and positions. The others bring their best tokens, with the repetition penalty applied, or all their logits.
 */
export class Sampler {
  /** f32 [slots][stride]: this rank's slice at its tokens' places. */
  readonly logits: Buffer;
  /** (key, token id) [parts][slots][`pairs`]: this rank's part, and after it, where it samples, the others'. */
  readonly candidates: Buffer;
  readonly #params: Buffer;
  /** Bits of tokens, [2][slots]: those seen, and behind those of all slots the ones that are allowed. */
  readonly #seen: Buffer;
  readonly #counter: Buffer;
  readonly #ids: Buffer | undefined;
  readonly #problem: Required<SliceProblem>;
  /** Where `#many` look at all tokens: the vocabulary's best pairs, bins and listed tokens (binned_layout.wgsl). */
  #binned: Buffer | undefined;
  /** The best tokens of each tile of a long slice. */
  #found: Buffer | undefined;
  /** Made when a request first has some. */
  #controls: LogitControls | undefined;
  /** Follows the GPU's own step counter: which row of `ids` the next step writes. */
  #step = 0;

  constructor(
    readonly device: Device,
    readonly shape: SamplerShape,
  ) {
    const { slots, vocab, stride, ring, slices, part } = shape;
    this.#problem = { slots, vocab, stride, ring, slice: nth(slices, part) };
    this.logits = device.createBuffer('logits', slots * stride * 4);
    this.#params = device.createBuffer('sampling', slots * SAMPLING_PARAMS_BYTES);
    this.#seen = device.createBuffer('seen', 2 * slots * seenWords(vocab) * 4);
    const pairs = SAMPLING_MODES.map((mode) => this.#parts(mode) * this.pairs(mode));
    this.candidates = device.createBuffer('candidates', slots * Math.max(...pairs) * 8);
    this.#counter = device.createBuffer('step_counter', 4);
    this.#ids = this.samples ? device.createBuffer('ids', ring * slots * 4) : undefined;
  }

  get samples(): boolean {
    return this.shape.part === 0;
  }

  /**
   * The mode that sampling of this kind runs in. One rank has all logits anyway, and on a CPU adapter searches them; on a GPU one
   * workgroup would read them all, so that many list their best tokens first. The token is the same.
   */
  modeFor(mode: SamplingMode): SamplingMode {
    return mode === 'top-k' && !this.#many && this.shape.slices.length === 1 ? 'whole' : mode;
  }

  /** Many workgroups look at the logits before the one that samples. */
  get #many(): boolean {
    return !this.device.traits.software;
  }

  /** Candidates of each slot in a part. */
  pairs(mode: SamplingMode): number {
    const { slices, vocab } = this.shape;
    if (mode === 'top-k') return CANDIDATES;
    return partialsPerSlot(mode === 'whole' ? vocab : Math.max(...slices.map(([first, end]) => end - first)));
  }

  #parts(mode: SamplingMode): number {
    return this.samples && mode !== 'whole' ? this.shape.slices.length : 1;
  }

  /** Records that the tokens a decode step feeds were seen, which the rank that samples knows already. `rowsOf`: those that matter. */
  recordSeen(recorder: RankRecorder, rowsOf: RowsOf): void {
    if (this.samples) return;
    const { tokens, rowInfo } = this.shape;
    recorder.dispatch(markSeen, this.#problem, { tokens, row_info: rowInfo, seen: this.#seen }, rowsOf);
  }

  /** Records what requests' controls make of this rank's logits. @returns the result, which is searched instead of them */
  recordControls(recorder: RankRecorder): Buffer {
    const { tokens, rowInfo } = this.shape;
    this.#controls!.recordAdjust(recorder, { logits: this.logits, seen: this.#seen, tokens, row_info: rowInfo });
    return this.#controls!.adjusted;
  }

  /** Records the search for this rank's best tokens; with `whole`, for the best of all tokens, whose logits have come. */
  recordCandidates(recorder: RankRecorder, mode: SamplingMode, logits: Buffer): void {
    const inputs = { logits, sampling: this.#params, seen: this.#seen, step_counter: this.#counter };
    if (mode !== 'top-k') {
      const { slice, ...whole } = this.#problem;
      const clearsBins = mode === 'whole' && this.#many;
      const problem = mode === 'whole' ? { ...whole, clearsBins } : { ...whole, slice, tiles: this.pairs(mode) };
      recorder.dispatch(argmaxPartial, problem, { ...inputs, partials: this.#partials(mode) });
      return;
    }
    const [first, end] = this.#problem.slice;
    const tiles = candidateTiles(end - first);
    if (tiles === 1) {
      recorder.dispatch(candidates, this.#problem, { ...inputs, candidates: this.candidates });
      return;
    }
    this.#found ??= this.device.createBuffer('tile candidates', this.shape.slots * tiles * CANDIDATES * 8);
    recorder.dispatch(candidates, this.#problem, { ...inputs, candidates: this.#found });
    recorder.dispatch(mergeCandidates, this.#problem, {
      found: this.#found,
      sampling: this.#params,
      candidates: this.candidates,
    });
  }

  #partials(mode: SamplingMode): Buffer {
    if (mode !== 'whole' || !this.#many) return this.candidates;
    return (this.#binned ??= this.device.createBuffer('binned vocabulary', binnedBytes(this.#problem)));
  }

  /**
   * Records sampling from the candidates of all ranks, or from all logits, on the rank that samples. Slots that need more than `mode`
   * must not be active; `greedy` has far less to compile than the others. `logits`: those that were searched.
   */
  recordSample(recorder: RankRecorder, mode: SamplingMode, logits: Buffer): void {
    const { tokens, rowInfo } = this.shape;
    const partials = this.#partials(mode);
    const inputs = { logits, partials, sampling: this.#params, seen: this.#seen };
    if (mode === 'whole' && logits !== this.logits) {
      this.#controls!.recordMinP(recorder, { partials, sampling: this.#params });
    }
    const binned = mode === 'whole' && this.#many;
    if (binned) for (const kernel of [binWeights, listBins]) recorder.dispatch(kernel, this.#problem, inputs);
    const hold = mode === 'top-k' ? 'candidates' : binned ? 'bins' : 'best';
    recorder.dispatch(
      sample,
      {
        ...this.#problem,
        draws: mode !== 'greedy',
        partials: { parts: this.#parts(mode), pairs: this.pairs(mode), hold },
      },
      { ...inputs, tokens, row_info: rowInfo, ids: this.#ids, step_counter: this.#counter },
    );
  }

  /** Where the step being submitted writes its ids, on the rank that samples. Call once for each replay of a program that samples. */
  nextIds(): { readonly ids: Buffer; readonly offset: number } {
    const offset = (this.#step % this.#problem.ring) * this.#problem.slots * 4;
    this.#step++;
    return { ids: this.#ids!, offset };
  }

  /** A step that failed between its candidates and its ids was counted on the GPU alone: both counts begin anew. Nothing may be in flight. */
  reset(): void {
    this.#step = 0;
    this.device.write(this.#counter, 0, new Uint32Array(1));
  }

  /** Once before `start` and what is recorded for requests that have controls. */
  async prepareControls(): Promise<void> {
    if (this.#controls) return;
    const { LogitControls } = await import('./logit_controls.js');
    this.#controls = await this.device.checked('preparing sampling controls', () => {
      return new LogitControls(this.device, this.#problem);
    });
  }

  /**
   * Begins a request, or goes on with one that had sampled `counter` tokens: its parameters, and the tokens seen so far, the sampled
   * ones last.
   * @param position that its next step is at
   * @param isFirst that step samples from the prompt, and feeds no token
   */
  start(slot: number, options: StartOptions, seen: Uint32Array, position: number, isFirst: boolean): void {
    const controlled = hasControls(options);
    const params = new DataView(new ArrayBuffer(SAMPLING_PARAMS_BYTES));
    writeSamplingParams(params, 0, { ...values(options), ...(controlled && this.#controls!.beside(options)) });
    this.device.write(this.#params, slot * SAMPLING_PARAMS_BYTES, params);
    if (readsSeen(options)) {
      const words = new Uint32Array(seenWords(this.#problem.vocab));
      for (const id of seen) words[id >>> 5]! |= 1 << (id & 31);
      this.device.write(this.#seen, slot * words.byteLength, words);
    }
    if (options.allowed) this.allow(slot, options.allowed);
    if (!controlled) return this.#controls?.stop(slot);
    const fed = isFirst ? 0 : 1;
    const generated = seen.subarray(seen.length - (options.counter ?? 0), seen.length - fed);
    this.#controls!.start(slot, options, position, generated, isFirst);
  }

  /** What the slot's next step may sample, of a request that was started with such a list. */
  allow(slot: number, allowed: AllowedTokens): void {
    const words = new Uint32Array(seenWords(this.#problem.vocab));
    words.set(allowed.subarray(0, words.length));
    this.device.write(this.#seen, (this.shape.slots + slot) * words.byteLength, words);
  }

  stop(slot: number): void {
    this.device.write(this.#params, slot * SAMPLING_PARAMS_BYTES + SAMPLING_FIELDS.active, new Uint32Array([0]));
  }
}

/** What the requests in a batch's slots need together: alike on every rank, as all are told of the same requests in the same order. */
export class SlotNeeds {
  readonly #slots = new Map<number, Omit<DrawOptions, 'seed'>>();

  mode: SamplingMode = 'greedy';
  /** Some slot has a repetition penalty: it matters which tokens were seen. */
  penalises = false;
  /** Some slot's logits change before they are searched. */
  controls = false;

  set(slot: number, options: Omit<DrawOptions, 'seed'>): void {
    this.#slots.set(slot, options);
    this.#count();
  }

  delete(slot: number): void {
    if (this.#slots.delete(slot)) this.#count();
  }

  clear(): void {
    this.#slots.clear();
    this.#count();
  }

  /** Asked for in each step, and counted where something changes. */
  #count(): void {
    const all = [...this.#slots.values()];
    const modes = new Set(all.map(samplingMode));
    this.mode = SAMPLING_MODES.findLast((mode) => modes.has(mode)) ?? 'greedy';
    this.penalises = all.some(({ repetitionPenalty = 1 }) => repetitionPenalty !== 1);
    this.controls = all.some(hasControls);
  }
}
