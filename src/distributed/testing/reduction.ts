import { reduceSegments } from '../../../shaders/linear/reduce_segments/index.js';
import { usageError } from '../../base/errors.js';
import { type Buffer, type Device, type Program, Recorder } from '../../gpu/index.js';
import { checkRoot, type Rank } from './collectives.js';
import type { Communicator, Exchange, Region, Transfer } from '../communicator.js';

/** Elements summed by one dispatch: each such block has a buffer of its own, so that long vectors fit a binding too. */
const BLOCK = 2 ** 20;

/**
 * Sums f32 vectors over the ranks, element by element and in a binary tree of ranks, ((x_0 + x_1) + (x_2 + x_3)) + ...: the same bits
 * over every link. Made once for its regions, by the same call on every rank; `run` may be repeated.
 */
export class Reduction {
  private constructor(
    readonly device: Device,
    readonly exchange: Exchange,
    readonly received: readonly Buffer[],
    readonly program: Program | undefined,
  ) {}

  /**
   * The sum of every rank's `input` into `output` of the root, which may be its input.
   * @param output needed on the root only
   * @throws SplitkvError `usage` when input and output differ in size.
   */
  static reduce(group: RankOnDevice, label: string, root: number, input: Region, output?: Region): Reduction {
    checkRoot(label, root, group.worldSize);
    const sends = [{ peer: root, regions: [input] }];
    if (group.rank !== root) return new Reduction(group.device, { label, sends, receives: [] }, [], undefined);
    if (!output) throw usageError(`${label}: rank ${root} is the root and needs an output`);
    return Reduction.#receiving(group, label, sends, input, output);
  }

  /** The sum of every rank's `input` into `output` of every rank, which may be its input. @throws as `reduce` does. */
  static allReduce(group: RankOnDevice, label: string, input: Region, output: Region): Reduction {
    const sends = Array.from({ length: group.worldSize }, (_, peer) => ({ peer, regions: [input] }));
    return Reduction.#receiving(group, label, sends, input, output);
  }

  static #receiving(
    { device, worldSize }: RankOnDevice,
    label: string,
    sends: readonly Transfer[],
    input: Region,
    output: Region,
  ): Reduction {
    if (input.size !== output.size) {
      throw usageError(`${label}: the input has ${input.size} bytes and the output ${output.size}; they must be equal`);
    }
    const received: Buffer[] = [];
    const regions: Region[][] = Array.from({ length: worldSize }, () => []);
    const recorder = new Recorder(device, label);
    for (let first = 0; first < input.size / 4; first += BLOCK) {
      const length = Math.min(BLOCK, input.size / 4 - first);
      const segments = device.createBuffer(`${label} received`, worldSize * length * 4);
      received.push(segments);
      for (const [rank, list] of regions.entries()) {
        list.push({ buffer: segments, offset: rank * length * 4, size: length * 4 });
      }
      const problem = {
        rows: 1,
        segmentCount: worldSize,
        outFeatures: length,
        inStride: length,
        outStride: length,
        outOffset: output.offset / 4 + first,
        bias: false,
        epilogue: 'none',
      } as const;
      recorder.dispatch(reduceSegments, problem, { segments, out: output.buffer });
    }
    const receives = regions.map((list, peer) => ({ peer, regions: list }));
    return new Reduction(device, { label, sends, receives }, received, recorder.finish());
  }

  /** Exchanges after the encoder's dispatches, and submits the sum: what the caller submits next sees it. */
  async run(comm: Communicator, encoder: GPUCommandEncoder): Promise<void> {
    await comm.exchange(encoder, this.exchange);
    if (!this.program) return;
    const adding = this.device.gpu.createCommandEncoder({ label: this.exchange.label });
    const pass = adding.beginComputePass();
    this.program.encode(pass, { rows: [1], chunks: 1 });
    pass.end();
    this.device.gpu.queue.submit([adding.finish()]);
  }

  dispose(): void {
    this.program?.dispose();
    for (const buffer of this.received) buffer.dispose();
  }
}

/** Who sums: a `Communicator` is one. */
export type RankOnDevice = Rank & { readonly device: Device };
