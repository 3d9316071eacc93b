import { SplitkvError } from '../base/errors.js';
import type { Communicator, Exchange } from '../distributed/communicator.js';
import type { Recorder, StepShape } from '../gpu/index.js';
import type { Plan } from '../placement/plan.js';
import { type RankTopology, rankTopology } from './topology.js';

/** A rank's place in the plan, and its line to the other ranks. */
export class World {
  readonly topology: RankTopology;
  readonly rank: number;
  #communicator: Communicator | undefined;

  /** `mixed`: the ranks' adapters differ, so results that others rely on exactly are computed by one rank. */
  constructor(
    readonly plan: Plan,
    rank: number,
    readonly mixed = false,
  ) {
    this.rank = rank;
    this.topology = rankTopology(plan, rank);
  }

  get communicator(): Communicator | undefined {
    return this.#communicator;
  }

  /** Also after a recovery, with the new group. */
  connect(communicator: Communicator): void {
    this.#communicator = communicator;
  }

  async exchange(encoder: GPUCommandEncoder, exchange: Exchange): Promise<void> {
    if (!this.#communicator) throw new SplitkvError('internal', `rank ${this.rank} isn't connected`);
    await this.#communicator.exchange(encoder, exchange);
  }

  /** Records an exchange; none where the rank neither sends nor receives. */
  hop(recorder: Recorder, label: string, transfers: (step: StepShape) => Omit<Exchange, 'label'>): void {
    const { ownRows, blockRanks } = this.topology;
    const { sends, receives } = transfers({ rows: 1, chunks: 1, blocks: (ownRows?.ranks ?? blockRanks).map(() => 1) });
    if (sends.length === 0 && receives.length === 0) return;
    recorder.hop({
      label,
      run: (encoder, step) => this.exchange(encoder, { label, channel: step.channel ?? 0, ...transfers(step) }),
    });
  }
}
