import { formatError, usageError } from '../../base/errors.js';
import { type PortReason } from '../../distributed/ports/port.js';
import type { ModelPlace } from '../../engine/workers/model_place.js';
import { endpointOf } from '../../loader/hub/hub_options.js';
import { hubText, isCommit, parseHubName } from '../../loader/hub/hub_name.js';
import { RankRunner } from '../../engine/ranks/rank_runner.js';
import type { RankRequest, WorkerCommand, WorkerReport } from '../../engine/workers/worker_protocol.js';
import type { AdapterMeasure, LinkMeasure } from '../../placement/index.js';
import { isLinkAddress } from '../links/nats_link.js';
import { isReason } from '../links/port_bridge.js';
import type { LinkAddress } from '../../engine/workers/worker_handle.js';

type Fields = Readonly<Record<string, unknown>>;
const fieldsOf = (value: unknown): Fields => (typeof value === 'object' && value !== null ? (value as Fields) : {});

/** Calls that end a rank or take what no message holds. */
const NOT_CALLED = ['constructor', 'abort', 'dispose'];
/** What a rank can be called: the methods of `Rank`, which RankRunner is. */
const isCall = (name: unknown): boolean =>
  typeof name === 'string' &&
  !NOT_CALLED.includes(name) &&
  Object.hasOwn(RankRunner.prototype, name) &&
  typeof Object.getOwnPropertyDescriptor(RankRunner.prototype, name)?.value === 'function';

/**
 * A command that came over the network to a rank, as far as a rank's worker doesn't check it by itself.
 * @throws SplitkvError `format`
 */
export function checkCommand(value: unknown): WorkerCommand {
  const { type, id, request, reason } = fieldsOf(value);
  if (type === 'abort' && isReason(reason)) return { type, reason };
  if (type === 'request' && isId(id) && isRequest(fieldsOf(request))) return value as WorkerCommand;
  throw formatError('a command that no coordinator gives');
}

const isId = (id: unknown): boolean => Number.isSafeInteger(id) && (id as number) >= 0;

function isRequest(request: Fields): boolean {
  const { type } = request;
  switch (type as RankRequest['type']) {
    case 'open':
      return isAdapterRequest(fieldsOf(request['adapter']));
    case 'load':
      return isSlice(fieldsOf(request['slice']));
    case 'connect':
      return isPeers(request['ports']);
    case 'measure':
      return isProbe(fieldsOf(request['subject']));
    case 'exchanges':
      return (
        isPeers(request['ports']) && request['ports'].size === 1 && (request['rank'] === 0 || request['rank'] === 1)
      );
    case 'call':
      return isCall(request['method']) && Array.isArray(request['args']);
    case 'ping':
    case 'dispose':
      return true;
    default:
      return false;
  }
}

const isProbe = ({ config, type, kvType, contextLength, batched }: Fields): boolean =>
  fieldsOf(config) === config &&
  typeof type === 'string' &&
  typeof kvType === 'string' &&
  isId(contextLength) &&
  typeof batched === 'boolean';

const isAdapterRequest = ({ variants }: Fields): boolean =>
  variants === undefined || variants === 'hardware' || variants === 'software';

function isSlice({ place, plan, rank, runner, type, digest }: Fields): boolean {
  const { worldSize, stages } = fieldsOf(plan);
  const isRank = isId(rank) && isId(worldSize) && (rank as number) < (worldSize as number);
  return (
    isPlace(fieldsOf(place)) &&
    isRank &&
    Array.isArray(stages) &&
    fieldsOf(runner) === runner &&
    typeof type === 'string' &&
    typeof digest === 'string'
  );
}

const isPlace = ({ kind, href, network }: Fields): boolean => {
  const { hub, commit } = fieldsOf(network);
  const isText = (value: unknown): boolean => typeof value === 'string' && value.length < 4096;
  return (
    kind === 'url' &&
    isText(href) &&
    fieldsOf(network) === network &&
    [hub, commit].every((value) => value === undefined || isText(value))
  );
};

function isPeers(peers: unknown): peers is ReadonlyMap<number, LinkAddress> {
  return peers instanceof Map && peers.size < 64 && [...peers].every(([rank, at]) => isId(rank) && isLinkAddress(at));
}

/** What may be asked of a rank's device; which adapter it is, is the rank's own matter. */
const REPORTS: readonly WorkerReport['type'][] = ['answer', 'failure', 'progress', 'warning', 'lost', 'broken'];

/**
 * A report that came from a rank of another machine.
 * @throws SplitkvError `format`
 */
export function checkReport(value: unknown): WorkerReport {
  const { type, id, reason, message, progress } = fieldsOf(value);
  const isKnown = REPORTS.includes(type as WorkerReport['type']);
  const isWhole =
    type === 'answer'
      ? isId(id)
      : type === 'failure'
        ? isId(id) && isReason(reason)
        : type === 'warning'
          ? typeof message === 'string'
          : type === 'progress'
            ? isProgress(fieldsOf(progress))
            : isReason(reason);
  if (!isKnown || !isWhole) throw formatError('a report that no rank gives');
  return value as WorkerReport;
}

const isProgress = (progress: Fields): boolean =>
  (['loadedBytes', 'totalBytes', 'tensorsLoaded', 'tensorsTotal'] as const).every((key) =>
    Number.isFinite(progress[key]),
  );

const isPositive = (value: unknown): boolean => Number.isFinite(value) && (value as number) > 0;

/** @throws SplitkvError `format` for what is no measure of an adapter */
export function checkMeasure(value: AdapterMeasure): AdapterMeasure {
  const { name, dense, expert, head, ...times } = value;
  const isNumbers = (fields: unknown): boolean =>
    Object.values(fieldsOf(fields)).every((each) =>
      typeof each === 'object' ? isNumbers(each) : Number.isFinite(each),
    );
  const isLayer = (layer: unknown): boolean =>
    layer === undefined ||
    (['generated', 'prompt'].every((role) => Number.isFinite(fieldsOf(fieldsOf(layer)[role])['layerSeconds'])) &&
      isNumbers(layer));
  const isHead =
    Number.isFinite(fieldsOf(head)['secondsPerByte']) && Number.isFinite(fieldsOf(head)['secondsPerByteRow']);
  const hasTimes = (['dispatchSeconds', 'submitSeconds', 'waitSeconds'] as const).every((key) =>
    Number.isFinite(times[key]),
  );
  if (typeof name === 'string' && isLayer(dense) && isLayer(expert) && isHead && hasTimes) return value;
  throw formatError('a rank measured what no adapter does');
}

/** @throws SplitkvError `format` for what is no measure of a link */
export function checkLink({ latencySeconds, bytesPerSecond }: LinkMeasure): LinkMeasure {
  if (isPositive(latencySeconds) && isPositive(bytesPerSecond)) return { latencySeconds, bytesPerSecond };
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
