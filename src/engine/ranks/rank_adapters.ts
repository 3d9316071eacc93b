import { limitError } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import type { Buffer } from '../../gpu/index.js';
import { LoadedAdapters, noPlaces } from '../../model/adapters/loaded_adapters.js';
import { type LowRankPair, targetsOf } from '../../model/adapters/targets.js';
import { nth } from '../../base/lists.js';
import type { Decoder } from '../../model/forward/decoder.js';
import { rankSlice } from '../../model/shape.js';
import { modelMap } from '../../model/weights/model_map.js';
import type { MatrixSpec } from '../../model/weights/weight_map.js';
import { LOGITS_ROWS, VERIFIED_ROWS } from '../contracts/rank.js';
import { NO_PLACE } from '../../../shaders/linear/low_rank/index.js';

const HEAD_ROWS = Math.max(LOGITS_ROWS, VERIFIED_ROWS);

/** The low-rank adapters of a rank: its slices of them, and which one each slot's rows have. */
export class RankAdapters {
  readonly #targets: readonly MatrixSpec[];
  readonly #places: Buffer;
  /** vec2<u32>: the slot, twice, of each row of the head in programs that aren't of all slots. */
  readonly #headInfo: Buffer;
  #present: ReadonlyMap<number, readonly LowRankPair[]> = new Map();

  /**
   * @param room bytes that they may take; undefined: no limit
   * @param recordAgain records all programs anew
   */
  constructor(
    readonly forward: Decoder,
    slots: number,
    readonly room: number | undefined,
    readonly recordAgain: () => Promise<void>,
  ) {
    const { device, config, world } = forward;
    this.#targets = targetsOf(modelMap(config, rankSlice(world.plan, world.rank, config)), config);
    this.#places = noPlaces(device, slots);
    this.#headInfo = device.createBuffer('head row_info', HEAD_ROWS * 8);
  }

  /**
   * Puts an adapter at a place, or takes away what is there. Nothing may be under way. Resolves with the bytes that all take.
   * @throws SplitkvError `limit`; then all is as before
   */
  async set(place: number, pairs: readonly LowRankPair[] | undefined): Promise<number> {
    const { forward } = this;
    const present = new Map([...this.#present].filter(([other]) => other !== place));
    if (pairs) present.set(place, pairs);
    const before = forward.adapters;
    const slots = { places: this.#places, headInfo: this.#headInfo };
    const loaded =
      present.size > 0 ? await LoadedAdapters.load(forward.device, this.#targets, present, slots) : undefined;
    const bytes = loaded?.bytes ?? 0;
    try {
      if (this.room !== undefined && bytes > this.room) {
        throw limitError(
          `adapters: rank ${forward.world.rank} has ${formatBytes(this.room)} left of its memory, and they take ` +
            `${formatBytes(bytes)}: remove some, or give it more`,
        );
      }
      forward.adapters = loaded;
      await this.recordAgain();
    } catch (error) {
      forward.adapters = before;
      loaded?.dispose();
      await this.recordAgain();
      throw error;
    }
    this.#present = present;
    before?.dispose?.();
    return bytes;
  }

  /** Rows of a slot have the adapter at a place from now on; undefined: none. */
  use(slot: number, place: number | undefined): void {
    const { device } = this.forward;
    if (!device.isLost) device.write(this.#places, slot * 4, Uint32Array.of(place ?? NO_PLACE));
  }

  /** Whose the rows of the head are in the next program that isn't of all slots: by row a slot. */
  useHead(slots: readonly number[]): void {
    const info = new Uint32Array(2 * slots.length).map((_, at) => nth(slots, at >> 1));
    this.forward.device.write(this.#headInfo, 0, info);
  }
}
