import * as z from 'zod/mini';
import { formatError, usageError } from '../../base/errors.js';
import type { PortReason } from '../../distributed/ports/port.js';
import type { ModelPlace } from '../../engine/workers/model_place.js';
import { endpointOf } from '../../loader/hub/hub_options.js';
import { hubText, isCommit, parseHubName } from '../../loader/hub/hub_name.js';
import { RankRunner } from '../../engine/ranks/rank_runner.js';
import type { LinkAddress, RankRequest, WorkerCommand, WorkerReport } from '../../engine/workers/worker_protocol.js';
import type { AdapterMeasure, LinkMeasure } from '../../placement/index.js';
import { isLinkAddress, isReason } from '../links/nats_link.js';

/** Calls that end a rank or take what no message holds. */
const NOT_CALLED = ['constructor', 'abort', 'dispose'];
/** What a rank can be called: the methods of `Rank`, which RankRunner is. */
const isCall = (name: string): boolean =>
  !NOT_CALLED.includes(name) &&
  Object.hasOwn(RankRunner.prototype, name) &&
  typeof Object.getOwnPropertyDescriptor(RankRunner.prototype, name)?.value === 'function';

const id = z.int().check(z.minimum(0));
const list = z.custom<unknown[]>(Array.isArray);
const link = z.custom<LinkAddress>(isLinkAddress);
const peers = z.map(id, link).check(z.refine((ports) => ports.size < 64));
const shortText = z.string().check(z.maxLength(4095));
const some = z.looseObject({});
const reason = z.custom<PortReason>(isReason);

const slice = z
  .looseObject({
    place: z.looseObject({
      kind: z.literal('url'),
      href: shortText,
      network: z.looseObject({ hub: z.optional(shortText), commit: z.optional(shortText) }),
    }),
    plan: z.looseObject({ worldSize: id, stages: list }),
    rank: id,
    runner: some,
    type: z.string(),
    digest: z.string(),
  })
  .check(z.refine(({ rank, plan }) => rank < plan.worldSize));

const subject = z.looseObject({
  config: some,
  type: z.string(),
  kvType: z.string(),
  contextLength: id,
  batched: z.boolean(),
});
/** Of one of several kinds, by its `type`. */
const kindOf = <Kinds extends Readonly<Record<string, z.core.$ZodLooseShape>>>(kinds: Kinds) =>
  z.discriminatedUnion(
    'type',
    Object.entries(kinds).map(([type, shape]) => z.looseObject({ ...shape, type: z.literal(type) })) as [
      z.ZodMiniObject<{ type: z.ZodMiniLiteral<string> }>,
    ],
  );

const request = kindOf({
  // Which adapter it is, is the rank's own matter.
  open: { adapter: z.looseObject({ variants: z.optional(z.enum(['hardware', 'software'])) }) },
  load: { slice },
  connect: { ports: peers },
  measure: { subject },
  exchanges: { ports: peers.check(z.refine((ports) => ports.size === 1)), rank: z.literal([0, 1]) },
  call: { method: z.string().check(z.refine(isCall)), args: list },
  ping: {},
  dispose: {},
} satisfies Record<RankRequest['type'], z.core.$ZodLooseShape>);
const command = kindOf({
  abort: { reason },
  request: { id, request },
} satisfies Record<WorkerCommand['type'], z.core.$ZodLooseShape>);

const count = z.number();
const report = kindOf({
  answer: { id },
  failure: { id, reason },
  progress: {
    progress: z.looseObject({ loadedBytes: count, totalBytes: count, tensorsLoaded: count, tensorsTotal: count }),
  },
  warning: { message: z.string() },
  lost: { reason },
  broken: { reason },
} satisfies Record<WorkerReport['type'], z.core.$ZodLooseShape>);

/**
 * A command that came over the network to a rank, as far as a rank's worker doesn't check it by itself.
 * @throws SplitkvError `format`
 */
export function checkCommand(value: unknown): WorkerCommand {
  if (!command.safeParse(value).success) throw formatError('a command that no coordinator gives');
  const given = value as WorkerCommand;
  return given.type === 'abort' ? { type: 'abort', reason: given.reason } : given;
}

/**
 * A report that came from a rank of another machine.
 * @throws SplitkvError `format`
 */
export function checkReport(value: unknown): WorkerReport {
  if (report.safeParse(value).success) return value as WorkerReport;
  throw formatError('a report that no rank gives');
}

const areNumbers = (value: unknown): boolean =>
  typeof value === 'object' ? Object.values(value ?? {}).every(areNumbers) : Number.isFinite(value);
const positive = z.number().check(z.positive());
const times = z.looseObject({ layerSeconds: count });
const layer = z.optional(z.looseObject({ generated: times, prompt: times }).check(z.refine(areNumbers)));
const measure = z.looseObject({
  name: z.string(),
  dense: layer,
  expert: layer,
  head: z.looseObject({ secondsPerByte: count, secondsPerByteRow: count }),
  dispatchSeconds: count,
  submitSeconds: count,
  waitSeconds: count,
});

/** @throws SplitkvError `format` for what is no measure of an adapter */
export function checkMeasure(value: AdapterMeasure): AdapterMeasure {
  if (measure.safeParse(value).success) return value;
  throw formatError('a rank measured what no adapter does');
}

/** @throws SplitkvError `format` for what is no measure of a link */
export function checkLink(value: LinkMeasure): LinkMeasure {
  const { success, data } = z.object({ latencySeconds: positive, bytesPerSecond: positive }).safeParse(value);
  if (success) return data;
  throw formatError('a rank measured what no link does');
}

/** Folders of models have such names: no way leads out of the folder that they are in. */
const FOLDER = /^[A-Za-z0-9][\w.+-]{0,127}$/;

/**
 * Where a rank finds the model that a coordinator names: at a URL of the web or a name of the Hub as it is, in a folder of its own
 * where it is a path of the coordinator's. Of how it is asked for, only the Hub is the coordinator's to say: the account and
 * headers are the rank's own. A commit becomes part of the name, so that what it holds isn't kept as that of a branch.
 * @param folder that the rank was given for models, as a file URL
 * @throws SplitkvError `usage` for what a rank doesn't open
 */
export function placeHere(place: ModelPlace, folder: string | undefined): ModelPlace {
  if (place.kind !== 'url') throw usageError("a rank of another machine can't read files of this one: name a URL");
  const { hub, commit } = place.network;
  const network = hub === undefined ? {} : { hub: endpointOf(hub, 'hub') };
  if (/^hf:/i.test(place.href)) {
    const name = parseHubName(place.href);
    const isPinned = commit !== undefined && isCommit(commit);
    return { kind: 'url', href: `hf:${hubText(isPinned ? { ...name, revision: commit } : name)}`, network };
  }
  if (/^https?:\/\//i.test(place.href)) return { kind: 'url', href: place.href, network };
  const path = /^file:\/\/([^?#]*)$/.exec(place.href)?.[1];
  if (path === undefined)
    throw usageError(`${place.href}: a rank opens http(s) addresses, hf:ORG/NAME, and folders of its own`);
  const name = decodeURIComponent(path.replace(/\/+$/, '').split('/').at(-1) ?? '');
  if (folder === undefined) {
    throw usageError(
      `the model ${name} is a folder, and this rank was given none: start it with --models FOLDER, which has ${name}, or name a model by http(s) or of the Hub`,
    );
  }
  if (!FOLDER.test(name)) throw usageError(`${JSON.stringify(name.slice(0, 100))}: no name of a folder of models`);
  return { kind: 'url', href: `${folder.replace(/\/$/, '')}/${encodeURIComponent(name)}`, network: {} };
}

/** The end of a rank, told to the coordinator. */
export const brokenReport = (message: string): WorkerReport => ({
  type: 'broken',
  reason: { kind: 'error', code: 'peer_lost', message } satisfies PortReason,
});
