import { isLoss } from '../../base/errors.js';
import type { HandedKv, PrefillWorker } from '../contracts/prefill_worker.js';

interface Member {
  readonly worker: PrefillWorker;
  /** Tokens of the prompts that it was given and hasn't computed. */
  waiting: number;
  /** Why it gets none: what it failed with. */
  failure: { readonly reason: unknown } | undefined;
}

/**
 * Several prefill workers as one. A prompt goes to the worker with the fewest tokens to compute. A worker that fails is left out, and its
 * prompt computed again by another; one that lost its device, or its thread, is made anew meanwhile and comes back.
 */
export class PrefillPool implements PrefillWorker {
  readonly kind = 'splitkv';
  readonly #members: readonly Member[];
  readonly #repairs = new Set<Promise<void>>();

  /** @param workers one or more */
  constructor(
    workers: readonly PrefillWorker[],
    readonly onWarning: (message: string) => void = () => {},
  ) {
    this.#members = workers.map((worker) => ({ worker, waiting: 0, failure: undefined }));
  }

  get #usable(): Member[] {
    return this.#members.filter(({ failure }) => !failure);
  }

  /** One where none is usable: what it is given says why. */
  get atOnce(): number {
    return Math.max(
      1,
      this.#usable.reduce((sum, { worker }) => sum + worker.atOnce, 0),
    );
  }

  get adapter(): string {
    return this.#members.map(({ worker }) => worker.adapter).join(', ');
  }

  /** Of all workers together. */
  get weightBytes(): number {
    return this.#members.reduce((sum, { worker }) => sum + worker.weightBytes, 0);
  }

  async prefill(prompt: readonly number[], signal?: AbortSignal): Promise<HandedKv> {
    for (;;) {
      const [first, ...rest] = this.#usable;
      // As one worker fails; `recover` makes all of them anew.
      if (!first) throw this.#members.findLast(({ failure }) => failure)!.failure!.reason;
      const member = rest.reduce((least, other) => (other.waiting < least.waiting ? other : least), first);
      member.waiting += prompt.length;
      try {
        return await member.worker.prefill(prompt, signal);
      } catch (error) {
        if (signal?.aborted) throw error;
        this.#leaveOut(member, error);
      } finally {
        member.waiting -= prompt.length;
      }
    }
  }

  #leaveOut(member: Member, reason: unknown): void {
    if (member.failure) return;
    member.failure = { reason };
    const others = this.#usable.length;
    if (others === 0) return;
    const why = reason instanceof Error ? reason.message : String(reason);
    this.onWarning(
      `a prefill worker (${member.worker.adapter}) failed: ${why}; its prompts are computed by the other${others === 1 ? '' : 's'}`,
    );
    if (!isLoss(reason)) return;
    const repair = this.#repair(member)
      .catch(() => {})
      .finally(() => this.#repairs.delete(repair));
    this.#repairs.add(repair);
  }

  async #repair(member: Member, signal?: AbortSignal): Promise<void> {
    await member.worker.recover(signal);
    member.failure = undefined;
  }

  assertUsable(): void {
    if (this.#usable.length === 0) this.#members[0]!.worker.assertUsable();
  }

  async recover(signal?: AbortSignal): Promise<void> {
    await Promise.all(this.#repairs);
    const left = this.#members.filter(({ failure }) => failure);
    const made = await Promise.allSettled(left.map((member) => this.#repair(member, signal)));
    if (this.#usable.length > 0) return;
    for (const one of made) if (one.status === 'rejected') throw one.reason;
  }

  async dispose(): Promise<void> {
    await Promise.all(this.#repairs);
    await Promise.all(this.#members.map(({ worker }) => worker.dispose()));
  }
}
