import { formatError, usageError } from '../../base/errors.js';
import { type Check, fields, isFlag, isNumber, isText, kindOf, oneOf, optional } from '../../base/checks.js';
import type { PortReason } from '../../distributed/ports/port.js';
import type { ModelPlace } from '../../engine/workers/model_place.js';
import { endpointOf } from '../../loader/hub/hub_options.js';
import { hubText, isCommit, parseHubName } from '../../loader/hub/hub_name.js';
import { RankRunner } from '../../engine/ranks/rank_runner.js';
import type { RankRequest, SliceRequest, WorkerCommand, WorkerReport } from '../../engine/workers/worker_protocol.js';
import type { AdapterMeasure, LinkMeasure } from '../../placement/index.js';
import { isLinkAddress, isReason } from '../links/nats_link.js';

/** Calls that end a rank or take what no message holds. */
const NOT_CALLED = ['constructor', 'abort', 'dispose'];
/** What a rank can be called: the methods of `Rank`, which RankRunner is. */
const isCall: Check = (name) =>
  typeof name === 'string' &&
  !NOT_CALLED.includes(name) &&
  Object.hasOwn(RankRunner.prototype, name) &&
  typeof Object.getOwnPropertyDescriptor(RankRunner.prototype, name)?.value === 'function';

const isId: Check = (id) => Number.isSafeInteger(id) && (id as number) >= 0;
const isPeers: Check = (peers) =>
  peers instanceof Map && peers.size < 64 && [...peers].every(([rank, at]) => isId(rank) && isLinkAddress(at));
const isShortText: Check = (text) => isText(text) && (text as string).length < 4096;

const isSlice = fields({
  place: fields({
    kind: oneOf('url'),
    href: isShortText,
    network: fields({ hub: optional(isShortText), commit: optional(isShortText) }),
  }),
  plan: fields({ worldSize: isId, stages: Array.isArray }),
  rank: isId,
  runner: fields({}),
  type: isText,
  digest: isText,
});

const requests: Readonly<Record<RankRequest['type'], Check>> = {
  // Which adapter it is, is the rank's own matter.
  open: fields({ adapter: fields({ variants: optional(oneOf('hardware', 'software')) }) }),
  load: fields({
    slice: (slice) => isSlice(slice) && (slice as SliceRequest).rank < (slice as SliceRequest).plan.worldSize,
  }),
  connect: fields({ ports: isPeers }),
  measure: fields({
    subject: fields({ config: fields({}), type: isText, kvType: isText, contextLength: isId, batched: isFlag }),
  }),
  exchanges: fields({
    ports: (ports) => isPeers(ports) && (ports as ReadonlyMap<unknown, unknown>).size === 1,
    rank: oneOf(0, 1),
  }),
  call: fields({ method: isCall, args: Array.isArray }),
  ping: fields({}),
  dispose: fields({}),
};

const commands: Readonly<Record<WorkerCommand['type'], Check>> = {
  abort: fields({ reason: isReason }),
  request: fields({ id: isId, request: kindOf(requests) }),
};

const reports: Readonly<Record<WorkerReport['type'], Check>> = {
  answer: fields({ id: isId }),
  failure: fields({ id: isId, reason: isReason }),
  progress: fields({
    progress: fields({
      loadedBytes: isNumber,
      totalBytes: isNumber,
      tensorsLoaded: isNumber,
      tensorsTotal: isNumber,
    }),
  }),
  warning: fields({ message: isText }),
  lost: fields({ reason: isReason }),
  broken: fields({ reason: isReason }),
};

/**
 * A command that came over the network to a rank, as far as a rank's worker doesn't check it by itself.
 * @throws SplitkvError `format`
 */
export function checkCommand(value: unknown): WorkerCommand {
  if (!kindOf(commands)(value)) throw formatError('a command that no coordinator gives');
  const command = value as WorkerCommand;
  return command.type === 'abort' ? { type: 'abort', reason: command.reason } : command;
}

/**
 * A report that came from a rank of another machine.
 * @throws SplitkvError `format`
 */
export function checkReport(value: unknown): WorkerReport {
  if (kindOf(reports)(value)) return value as WorkerReport;
  throw formatError('a report that no rank gives');
}

const areNumbers: Check = (value) =>
  typeof value === 'object' ? Object.values(value ?? {}).every(areNumbers) : isNumber(value);
const isPositive: Check = (value) => isNumber(value) && (value as number) > 0;
const isLayer = fields({ generated: fields({ layerSeconds: isNumber }), prompt: fields({ layerSeconds: isNumber }) });
const isMeasure = fields({
  name: isText,
  dense: optional((layer) => isLayer(layer) && areNumbers(layer)),
  expert: optional((layer) => isLayer(layer) && areNumbers(layer)),
  head: fields({ secondsPerByte: isNumber, secondsPerByteRow: isNumber }),
  dispatchSeconds: isNumber,
  submitSeconds: isNumber,
  waitSeconds: isNumber,
});

/** @throws SplitkvError `format` for what is no measure of an adapter */
export function checkMeasure(value: AdapterMeasure): AdapterMeasure {
  if (isMeasure(value)) return value;
  throw formatError('a rank measured what no adapter does');
}

/** @throws SplitkvError `format` for what is no measure of a link */
export function checkLink(value: LinkMeasure): LinkMeasure {
  if (!fields({ latencySeconds: isPositive, bytesPerSecond: isPositive })(value))
    throw formatError('a rank measured what no link does');
  const { latencySeconds, bytesPerSecond } = value;
  return { latencySeconds, bytesPerSecond };
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
