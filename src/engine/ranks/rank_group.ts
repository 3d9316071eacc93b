import { nth } from '../../base/lists.js';
import { mostOf, type WeightTypes } from '../../model/weights/weight_types.js';
import { throwIfAborted } from '../../base/errors.js';
import { createGroup } from '../../distributed/index.js';
import { type AdapterDescription, type AdapterRequest, type Device, openDevice } from '../../gpu/index.js';
import { World } from '../../model/layers/world.js';
import type { Plan } from '../../placement/index.js';
import { openRank, progressOf, type RankProgress, type RankRequest } from './open_rank.js';
import type { RankRunner } from './rank_runner.js';
import { Runner } from './runner.js';

export interface GroupOptions extends Omit<RankRequest, 'again'> {
  readonly plan: Plan;
  readonly adapters: readonly AdapterRequest[];
  /** All ranks on one device, the first adapter's. */
  readonly virtual: boolean;
  /** Opens a rank's device; default `openDevice`. */
  readonly open?: (request: AdapterRequest) => Promise<Device>;
  readonly onProgress?: ((progress: RankProgress) => void) | undefined;
}

export type NamedAdapter = AdapterDescription & { readonly name: string };

/** The ranks of a model, wherever they run. */
export interface ModelRanks {
  readonly options: Pick<GroupOptions, 'type' | 'plan'> & Partial<Pick<GroupOptions, 'virtual'>>;
  /** Where the ranks run, if not in this thread. */
  readonly places?: { name?(rank: number): string };
  /** Another one after each recovery. */
  readonly runner: Runner;
  readonly adapter: NamedAdapter;
  /** @throws SplitkvError `device_lost`, `peer_lost` when a rank is lost: then only `recover` helps. */
  assertUsable(): void;
  /**
   * Makes the group whole again after a failure: new devices and weights for ranks that were lost, new links for all. Every
   * sequence's cache is given up; weights of ranks that weren't lost stay where they are. Ranks of other machines may have another plan
   * then: where none comes in the place of one that was lost.
   */
  recover(signal?: AbortSignal): Promise<void>;
  dispose(): void | Promise<void>;
}

/** The ranks of a model in this process: their devices, weights and links, and their recovery. */
export class RankGroup implements ModelRanks {
  runner: Runner;

  private constructor(
    readonly options: GroupOptions,
    public ranks: readonly RankRunner[],
  ) {
    this.runner = this.#connect();
  }

  /** Opens every rank's device and loads its slice. @throws as `openDevice` and `loadWeights`; nothing stays allocated then. */
  static async open(options: GroupOptions): Promise<RankGroup> {
    const devices: Device[] = [];
    try {
      for (let rank = 0; rank < options.plan.worldSize; rank++) {
        devices.push(options.virtual && rank > 0 ? nth(devices, 0) : await deviceOf(options, rank));
      }
      const ranks = await loadOn(options, devices);
      await Promise.all([...new Set(devices)].map((device) => device.settle()));
      throwIfAborted(options.signal, 'loading');
      return new RankGroup(options, ranks);
    } catch (error) {
      for (const device of devices) device.dispose();
      throw error;
    }
  }

  get devices(): readonly Device[] {
    return this.ranks.map(({ device }) => device);
  }

  get adapter(): NamedAdapter {
    const { adapter, name } = nth(this.devices, 0);
    return { ...adapter, name };
  }

  assertUsable(): void {
    for (const device of this.devices) device.assertAlive();
  }

  #connect(): Runner {
    const { plan, config, runner } = this.options;
    const communicators = createGroup(this.devices);
    for (const [rank, { world }] of this.ranks.entries()) world.communicator = nth(communicators, rank);
    return new Runner(this.ranks, plan, config, runner);
  }

  async recover(signal?: AbortSignal): Promise<void> {
    const { options } = this;
    for (const rank of this.ranks) rank.abort(new Error('the ranks are being rebuilt'));
    await Promise.all(this.ranks.filter(({ device }) => !device.isLost).map((rank) => rank.reset()));
    const devices = new Map<Device, Device>();
    try {
      for (const { device, world } of this.ranks) {
        if (!device.isLost || devices.has(device)) continue;
        devices.set(device, await deviceOf(options, world.rank));
      }
      const next = this.ranks.map(({ device }) => devices.get(device) ?? device);
      const ranks = await loadOn({ ...options, signal }, next, this.ranks);
      for (const { device, world } of this.ranks) {
        world.communicator?.dispose();
        if (devices.has(device)) device.dispose();
      }
      this.ranks = ranks;
      this.runner = this.#connect();
    } catch (error) {
      for (const device of devices.values()) device.dispose();
      throw error;
    }
  }

  dispose(): void {
    for (const rank of this.ranks) rank.dispose();
  }
}

/** Whether a kernel multiplies prompts otherwise than exactly. */
export const roundsPrompts = (ranks: ModelRanks['runner']['ranks']): boolean =>
  ranks.some(({ facts }) => Object.values(facts.variants).some((variant) => variant.includes(',')));

/** Tells where precision 'fast' changes nothing. */
export function warnOfExact(
  type: WeightTypes,
  { runner: { ranks }, adapter }: ModelRanks,
  onWarning: GroupOptions['onWarning'],
): void {
  if (roundsPrompts(ranks)) return;
  const why =
    mostOf(type) === 'f32'
      ? 'f32 weights are never rounded'
      : adapter.variants === 'software'
        ? 'kernels for the CPU have no faster form'
        : 'its ranks have neither matrix units nor packed products of bytes nor f16 in shaders in common, or compute wrongly with them';
  onWarning?.(`precision 'fast': prompts are computed exactly all the same: ${why}`);
}

function deviceOf({ adapters, virtual, open = openDevice }: GroupOptions, rank: number): Promise<Device> {
  const instance = virtual ? 0 : rank;
  return open({ ...nth(adapters, instance), instance });
}

/** Loads each rank's slice on its device; ranks of `before` that are there already stay. */
async function loadOn(
  options: GroupOptions,
  devices: readonly Device[],
  before: readonly RankRunner[] = [],
): Promise<readonly RankRunner[]> {
  const { plan } = options;
  const mixed = devices.some(({ name }) => name !== nth(devices, 0).name);
  const missing = devices.filter((device, rank) => before[rank]?.device !== device);
  const progress = progressOf(missing.length, options.onProgress);
  const ranks: RankRunner[] = [];
  for (const [rank, device] of devices.entries()) {
    const kept = before[rank];
    if (kept?.device === device) {
      ranks.push(kept);
      continue;
    }
    const again = (): Promise<Device> => deviceOf(options, rank);
    const world = new World(plan, rank, mixed);
    ranks.push(await openRank(device, world, { ...options, again }, (own) => progress(rank, own)));
  }
  return ranks;
}
