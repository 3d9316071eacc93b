import { joinWords } from '../../../base/math.js';
import type { AllowedTokens, DrawOptions } from '../../contracts/rank.js';
import { samplingOf } from '../../ranks/sampling/sampling_options.js';
import type { HeldAdapter } from '../adapters.js';
import type { Drafter } from '../speculation/speculation.js';
import type { TrunkRows } from '../speculation/trunk_rows.js';
import type { EngineEnd, EngineRequest } from './requests.js';

/** A request that was submitted, until it has ended. */
export class Running {
  /** When it came, in seconds of `performance.now()`. */
  readonly submitted = performance.now() / 1000;
  cachedTokens = 0;
  /** Its prompt has begun to be computed. */
  begun = false;
  /** Its prompt is computed, and being kept. */
  isKept = false;
  /** Handed on so far. */
  emitted = 0;
  /** It waits for another one that is tried alone. */
  held = false;
  /** After a recovery: tokens that come again and were handed on before. */
  replay = 0;
  over: EngineEnd | undefined;
  /** What may follow its tokens is proposed. */
  isDrafted = false;
  /** Since its tokens were first wanted: others' needn't be looked up. */
  drafters: readonly Drafter[] | undefined;
  /** Of its positions, where drafts are made of them. */
  rows: TrunkRows | undefined;
  readonly speculation = { drafted: 0, accepted: 0, steps: 0 };
  /** What its next step may sample, where that is limited. */
  allowed: AllowedTokens | undefined;
  /** And what may follow each of its drafts. */
  behind: readonly AllowedTokens[] = [];
  resolve!: (end: EngineEnd) => void;
  reject!: (reason: unknown) => void;
  readonly ended = new Promise<EngineEnd>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor(
    readonly request: EngineRequest,
    readonly adapter: HeldAdapter | undefined,
  ) {
    this.ended.catch(() => {}); // whoever asks hears of it
  }

  /** When its first token should be there, as `submitted`. */
  get firstTokenDeadline(): number | undefined {
    const { firstTokenSeconds } = this.request;
    return firstTokenSeconds === undefined ? undefined : this.submitted + firstTokenSeconds;
  }
}

export function endDrafts(running: Running): void {
  for (const drafter of running.drafters ?? []) drafter.end?.();
  running.drafters = undefined;
}

/** What sampling needs of a request, and nothing that can't go to a worker. @param drafts beside its next row */
export const drawOptions = ({ request, allowed, behind }: Running, drafts = 0): DrawOptions => ({
  ...samplingOf(request),
  ...(request.endIds && { endIds: request.endIds }),
  ...(allowed && { allowed: drafts > 0 ? joinWords([allowed, ...behind.slice(0, drafts)]) : allowed }),
});
